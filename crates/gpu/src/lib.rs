//! The place of the wgpu device. It exports nothing yet: every kernel runs on the processor.
#![forbid(unsafe_code)]
