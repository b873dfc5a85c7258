//! Zip archives of checkpoints: stored and deflated members, zip64, aligned entries.
