//! The arguments of every verb.

use super::cat::CatArgs;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Converts and edits model checkpoints: TensorFlow, PyTorch, safetensors, any to any, with dtype casts and renames,
/// streaming, with neither TensorFlow nor PyTorch installed.
#[derive(Debug, Parser)]
#[command(name = "weightlift", version, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// List the tensors of a checkpoint: name, dtype, shape, bytes
    Ls(LsArgs),
    /// Print the values of a tensor, as NumPy would: weightlift cat CKPT 'NAME[0:3, -1]'
    Cat(CatArgs),
    /// Convert or edit a checkpoint: weightlift convert model.ckpt half.pt --dtype f16
    Convert(ConvertArgs),
    /// Show what convert would do, and write nothing
    Plan(ConvertArgs),
}

#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// A TensorFlow prefix, index, data file or folder, a PyTorch file, a safetensors file or set, .npy or .npz
    pub(crate) checkpoint: PathBuf,
    /// Only tensors that a pattern selects: a name, a glob (* ** ? {a,b}), /regex/, or a part of the name
    pub(crate) patterns: Vec<String>,
    /// Print JSON (schema weightlift.ls/1)
    #[arg(long, conflicts_with = "names_only")]
    pub(crate) json: bool,
    /// Print names only, a line each
    #[arg(long)]
    pub(crate) names_only: bool,
    /// The order of the list
    #[arg(long, value_enum, default_value_t = Sort::File)]
    pub(crate) sort: Sort,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// As the checkpoint has them
    File,
    /// By name
    Name,
    /// Largest first
    Bytes,
}

#[derive(Debug, Args)]
pub(crate) struct ConvertArgs {
    /// The checkpoint to read
    pub(crate) input: PathBuf,
    /// The checkpoint to write; its extension chooses the format: .pt .pth .bin, .safetensors, .npz,
    /// .ckpt or none
    pub(crate) output: PathBuf,

    /// Cast: --dtype f16 (every floating-point tensor), --dtype f32:bf16, --dtype 'embed**=f32'; the last that
    /// concerns a tensor wins
    #[arg(long, value_name = "[PATTERN=][SRC:]DST", help_heading = "Steps, in the order given")]
    pub(crate) dtype: Vec<String>,
    /// Keep only what a pattern selects; several in a row are one step
    #[arg(long, value_name = "PATTERN", help_heading = "Steps, in the order given")]
    pub(crate) include: Vec<String>,
    /// Drop what a pattern selects
    #[arg(long, value_name = "PATTERN", help_heading = "Steps, in the order given")]
    pub(crate) exclude: Vec<String>,
    /// Rename every match: $1 ${name} ${1+1} in the replacement
    #[arg(long, value_name = "REGEX=REPL", help_heading = "Steps, in the order given")]
    pub(crate) rename: Vec<String>,
    /// Take a prefix off the start of names, again and again
    #[arg(long, value_name = "PREFIX", help_heading = "Steps, in the order given")]
    pub(crate) strip_prefix: Vec<String>,
    /// Put a prefix before every name
    #[arg(long, value_name = "PREFIX", help_heading = "Steps, in the order given")]
    pub(crate) add_prefix: Vec<String>,
    /// Take one subtree of a nested file, by its joined path, or find the state dict: --key auto
    #[arg(long, value_name = "PATH|auto", help_heading = "Steps, in the order given")]
    pub(crate) key: Vec<String>,

    /// The format to write, whatever the extension says
    #[arg(long, value_name = "FORMAT", value_parser = ["tf", "pt", "safetensors", "npz"], help_heading = "Output and checks")]
    pub(crate) to: Option<String>,
    /// What a value beyond the range of its new dtype becomes
    #[arg(long, value_enum, value_name = "POLICY", default_value_t = OnOverflow::Error, help_heading = "Output and checks")]
    pub(crate) on_overflow: OnOverflow,
    /// Write a set of files of at most this size (5GB, 512MiB): safetensors with its index, or TensorFlow data files
    #[arg(long, value_name = "SIZE", value_parser = super::show::parse_bytes, help_heading = "Output and checks")]
    pub(crate) shard_size: Option<u64>,
    /// Leave out what the output's format cannot hold, instead of failing
    #[arg(long, help_heading = "Output and checks")]
    pub(crate) skip_unsupported: bool,
    /// Leave out what is no tensor, even where the format could carry it; of a PyTorch file only what
    /// torch.load(weights_only=True) refuses
    #[arg(long, help_heading = "Output and checks")]
    pub(crate) weights_only: bool,
    /// Write calls of functions back that may do more than make a value (PyTorch): loading the output runs them
    #[arg(long, conflicts_with = "weights_only", help_heading = "Output and checks")]
    pub(crate) keep_calls: bool,
    /// Keep whole storages (PyTorch to PyTorch); without it, what no tensor uses of them is left behind
    #[arg(long, help_heading = "Output and checks")]
    pub(crate) keep_storages: bool,
    /// Put everything under this key, as many trainers expect it: {KEY: OrderedDict} (PyTorch)
    #[arg(long, value_name = "KEY", help_heading = "Output and checks")]
    pub(crate) nest: Option<String>,
    /// Let patterns and renames match nothing
    #[arg(long, help_heading = "Output and checks")]
    pub(crate) allow_unmatched: bool,
    /// Let a view grow more than 1000-fold when it is written dense
    #[arg(long, help_heading = "Output and checks")]
    pub(crate) allow_expand: bool,
    /// Do not verify the checksums stored in the input
    #[arg(long, help_heading = "Output and checks")]
    pub(crate) no_verify: bool,
    /// Number of worker threads [default: one a processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..), help_heading = "Output and checks")]
    pub(crate) threads: Option<u16>,
    /// Replace an existing output
    #[arg(long, help_heading = "Output and checks")]
    pub(crate) force: bool,
    /// Show the plan and write nothing
    #[arg(long, help_heading = "Output and checks")]
    pub(crate) dry_run: bool,
    /// Print the result as JSON (schema weightlift.convert/1 or weightlift.plan/1)
    #[arg(long, help_heading = "Output and checks")]
    pub(crate) json: bool,
    /// Say nothing but errors and warnings
    #[arg(long, short, help_heading = "Output and checks")]
    pub(crate) quiet: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnOverflow {
    /// Write nothing, and name the tensors and counts
    Error,
    /// The new dtype's infinity, or its NaN where it has none
    Inf,
    /// The largest finite value
    Saturate,
}

impl From<OnOverflow> for weightlift::OnOverflow {
    fn from(policy: OnOverflow) -> weightlift::OnOverflow {
        match policy {
            OnOverflow::Error => weightlift::OnOverflow::Error,
            OnOverflow::Inf => weightlift::OnOverflow::Inf,
            OnOverflow::Saturate => weightlift::OnOverflow::Saturate,
        }
    }
}
