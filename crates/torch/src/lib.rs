//! PyTorch checkpoints, read and written without PyTorch and without running a pickle.
