//! Tests of the whole: the command, the library, the frameworks as judges, and the rules of the workspace.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests say what they expect by panicking")]
#![allow(clippy::print_stdout, clippy::print_stderr, unreachable_pub, missing_docs, reason = "a test program")]

#[path = "it/bad_input.rs"]
mod bad_input;
#[path = "it/casts_like.rs"]
mod casts_like;
#[path = "it/casts_report.rs"]
mod casts_report;
#[path = "it/casts_scales.rs"]
mod casts_scales;
#[path = "it/command.rs"]
mod command;
#[path = "it/convert.rs"]
mod convert;
#[path = "it/cookbook.rs"]
mod cookbook;
#[cfg(feature = "gpu")]
#[path = "it/device_runs.rs"]
mod device_runs;
#[path = "it/devices.rs"]
mod devices;
#[path = "it/edits.rs"]
mod edits;
#[path = "it/edits_kit.rs"]
mod edits_kit;
#[path = "it/edits_merges.rs"]
mod edits_merges;
#[path = "it/edits_names.rs"]
mod edits_names;
#[path = "it/edits_presets.rs"]
mod edits_presets;
#[path = "it/edits_recipes.rs"]
mod edits_recipes;
#[path = "it/edits_rows.rs"]
mod edits_rows;
#[path = "it/listing.rs"]
mod listing;
#[path = "it/numpy_files.rs"]
mod numpy_files;
#[path = "it/peers.rs"]
mod peers;
#[path = "it/promises.rs"]
mod promises;
#[path = "it/random_plans.rs"]
mod random_plans;
#[path = "it/safetensors_edits.rs"]
mod safetensors_edits;
#[path = "it/safetensors_files.rs"]
mod safetensors_files;
#[path = "it/shards_hub.rs"]
mod shards_hub;
#[path = "it/shards_sets.rs"]
mod shards_sets;
#[path = "it/stats.rs"]
mod stats;
#[path = "it/tf_command.rs"]
mod tf_command;
#[path = "it/tf_peers.rs"]
mod tf_peers;
#[path = "it/torch_old.rs"]
mod torch_old;
#[path = "it/torch_random.rs"]
mod torch_random;
#[path = "it/torch_read.rs"]
mod torch_read;
#[path = "it/torch_write.rs"]
mod torch_write;
#[path = "it/workspace.rs"]
mod workspace;
