//! safetensors files, read and written with order and metadata kept.
