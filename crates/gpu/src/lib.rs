//! Kernels of weightlift on wgpu.
