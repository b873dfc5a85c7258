//! Plans and the pipeline that carries them out: tiles, workers, checks.
