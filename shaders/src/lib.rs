//! WGSL shaders of weightlift.
