//! Tests of the whole: the command, the library, the frameworks as judges, and the rules of the workspace.

#[path = "it/bad_input.rs"]
mod bad_input;
#[path = "it/command.rs"]
mod command;
#[path = "it/convert.rs"]
mod convert;
#[path = "it/listing.rs"]
mod listing;
#[path = "it/peers.rs"]
mod peers;
#[path = "it/promises.rs"]
mod promises;
#[path = "it/workspace.rs"]
mod workspace;
