//! The place of the WGSL shaders of the wgpu device. It exports nothing yet.
#![forbid(unsafe_code)]
