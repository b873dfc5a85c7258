//! Sharded sets: the Hugging Face index.
