//! TensorFlow checkpoints, read and written without TensorFlow.
