//! The arguments of every verb.

use super::cat::CatArgs;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::{Path, PathBuf};

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
    #[command(override_usage = "weightlift convert [OPTIONS] <IN>... <OUT>")]
    Convert(ConvertArgs),
    /// Show what convert would do, and write nothing; -o recipe.toml writes the steps down
    #[command(override_usage = "weightlift plan [OPTIONS] <IN>... <OUT>")]
    Plan(PlanArgs),
    /// Write the index of a sharded set anew, from what its files hold: weightlift reindex DIR
    Reindex(ReindexArgs),
    /// Sum up the values of tensors, and what a cast would take from them: weightlift stats CKPT --as f16
    Stats(StatsArgs),
    /// Measure how fast this machine casts and copies, next to memcpy; takes less than a minute
    Bench(BenchArgs),
    /// List the processor and the compute devices: driver, limits, rates measured by bench --device
    Devices(DevicesArgs),
    /// List the presets, or print the rules of one
    Presets {
        /// The preset to print, or a file of your own to check
        #[arg(value_name = "NAME|FILE.toml")]
        name: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ReindexArgs {
    /// The folder of the set, its index (which need not exist), or one of its files
    pub(crate) set: PathBuf,
    /// Replace an existing index
    #[arg(long)]
    pub(crate) force: bool,
    /// Show what would change, and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print JSON (schema weightlift.reindex/1)
    #[arg(long)]
    pub(crate) json: bool,
}

/// How checkpoints are opened.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct OpenArgs {
    /// Read files with harmless faults, each with a warning: safetensors headers padded with NUL, longer than 100 MB,
    /// or with metadata that are no texts; bytes after the last tensor
    #[arg(long, help_heading = "Input")]
    pub(crate) lenient: bool,
    /// Refuse a sharded set whose index does not fit its files in every point, instead of warning
    #[arg(long, help_heading = "Input")]
    pub(crate) strict: bool,
    /// Which names of a TensorFlow 2 checkpoint: its keys, or names resolved through its object graph
    #[arg(long, value_enum, value_name = "WHICH", default_value_t = Names::Stored, help_heading = "Input")]
    pub(crate) names: Names,
    /// Read what is readable of a damaged file: tensors whose values are missing, cut short or do not fit their
    /// checksum are left out and named, and the exit code is 1
    #[arg(long, help_heading = "Input")]
    pub(crate) salvage: bool,
}

impl OpenArgs {
    /// Opens a checkpoint so.
    pub(crate) fn open(&self, path: &std::path::Path) -> weightlift::Result<weightlift::Opened> {
        let mut options = weightlift::OpenOptions::default();
        (options.lenient, options.strict, options.salvage) = (self.lenient, self.strict, self.salvage);
        options.names = self.names.into();
        weightlift::open_with(path, &options)
    }
}

#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// A TensorFlow prefix, index, data file or folder, a PyTorch file, a safetensors file or set, .npy, .npz or a folder
    /// of .npy files
    pub(crate) checkpoint: PathBuf,
    /// Only tensors that a pattern selects: a name, a glob (* ** ? {a,b}), /regex/, or a part of the name
    pub(crate) patterns: Vec<String>,
    /// Print JSON (schema weightlift.ls/1)
    #[arg(long, conflicts_with = "names_only")]
    pub(crate) json: bool,
    /// Print names only, a line each
    #[arg(long)]
    pub(crate) names_only: bool,
    /// List the parts of partitioned variables under each
    #[arg(long)]
    pub(crate) partitions: bool,
    /// The order of the list
    #[arg(long, value_enum, default_value_t = Sort::File)]
    pub(crate) sort: Sort,
    #[command(flatten)]
    pub(crate) opening: OpenArgs,
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

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Names {
    /// As the file stores them: model/kernel/.ATTRIBUTES/VARIABLE_VALUE
    #[default]
    Stored,
    /// The way through the objects, optimizer slots under their variable: model/kernel, model/kernel/m
    Object,
    /// What the variables were called: sequential/dense/kernel
    Full,
}

impl From<Names> for weightlift::Names {
    fn from(names: Names) -> weightlift::Names {
        match names {
            Names::Stored => weightlift::Names::Stored,
            Names::Object => weightlift::Names::Object,
            Names::Full => weightlift::Names::Full,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    /// The checkpoint to read
    pub(crate) checkpoint: PathBuf,
    /// Only tensors that a pattern selects: a name, a glob (* ** ? {a,b}), /regex/, or a part of the name
    pub(crate) patterns: Vec<String>,
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// Tell what a cast of every floating-point tensor to this dtype would lose
    #[arg(long = "as", value_name = "DTYPE", value_parser = dtype)]
    pub(crate) cast: Option<weightlift::DType>,
    /// Whose bits the cast of --as gives
    #[arg(long, value_enum, value_name = "MANNER", default_value_t = Like::Exact, requires = "cast")]
    pub(crate) like: Like,
    /// Do not verify the checksums stored in the input
    #[arg(long)]
    pub(crate) no_verify: bool,
    /// Number of worker threads [default: one a processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads: Option<u16>,
    /// Print JSON (schema weightlift.stats/1)
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Measure a compute device instead, beside the processor: gpu, or gpu:N as `devices` lists them; what is measured is
    /// kept for --device auto
    #[arg(long, value_name = "DEVICE", value_parser = bench_device)]
    pub(crate) device: Option<BenchDevice>,
    /// Bytes that a thread reads and writes in one pass over memory
    #[arg(long, value_name = "SIZE", value_parser = super::show::parse_bytes, default_value = "96MiB")]
    pub(crate) size: u64,
    /// Number of threads of the last column [default: one a processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads: Option<u16>,
    /// Print JSON (schema weightlift.bench/1; with --device weightlift.bench-device/1)
    #[arg(long)]
    pub(crate) json: bool,
}

/// The number of a compute device; the first where none is said.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BenchDevice(pub(crate) Option<usize>);

fn bench_device(text: &str) -> Result<BenchDevice, String> {
    match parse_device(text) {
        Ok(weightlift::DeviceChoice::Gpu(number)) => Ok(BenchDevice(number)),
        _ => Err("expected gpu or gpu:N, N as `weightlift devices` counts".to_owned()),
    }
}

#[derive(Debug, Args)]
pub(crate) struct DevicesArgs {
    /// Print JSON (schema weightlift.devices/1)
    #[arg(long)]
    pub(crate) json: bool,
}

fn dtype(name: &str) -> Result<weightlift::DType, String> {
    name.parse().map_err(|error: weightlift_core::UnknownDType| error.to_string())
}

#[derive(Debug, Args)]
pub(crate) struct ConvertArgs {
    /// The checkpoint to edit, others that steps read (PATH or WORD=PATH: their tensors are called WORD::NAME), and
    /// last the checkpoint to write; its extension chooses the format: .pt .pth .bin, .safetensors, .npz, .ckpt or none
    #[arg(value_names = ["IN", "OUT"], num_args = 2.., required = true)]
    pub(crate) paths: Vec<PathBuf>,

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
    /// Rename by a table: lines of old name, tab, new name; or a JSON object, or a TOML table
    #[arg(long, value_name = "FILE", help_heading = "Steps, in the order given")]
    pub(crate) map: Vec<String>,
    /// Rename and lay out by a table of rules: bert, albert, electra, gpt2, t5 (TensorFlow to Hugging Face), keras, or a
    /// file of your own; NAME:reverse goes back; weightlift presets shows them
    #[arg(long, value_name = "NAME|FILE.toml[:reverse]", help_heading = "Steps, in the order given")]
    pub(crate) preset: Vec<String>,
    /// Take the weights as they were trained, or the moving averages kept beside them (NAME/ExponentialMovingAverage,
    /// model_ema, ema_state_dict, params_ema, ...) in their place; the others go
    #[arg(long, value_name = "raw|ema", help_heading = "Steps, in the order given")]
    pub(crate) weights: Vec<String>,
    /// Drop what optimizers keep: slots beside their weights, counters, PyTorch's optimizer entries (docs/optimizer.md
    /// lists them); the closing lines count what went
    #[arg(long, num_args = 0, default_missing_value = "", help_heading = "Steps, in the order given")]
    pub(crate) drop_optimizer: Vec<String>,
    /// Multiply 8-bit weights that become wider floats with the scales beside them (weight_scale, scale_weight,
    /// weight_scale_inv, ...), and leave out the scales; done after all other steps
    #[arg(long, num_args = 0, default_missing_value = "", help_heading = "Steps, in the order given")]
    pub(crate) apply_scales: Vec<String>,
    /// Set a tensor or a part of it, keeping its dtype: --set 'w[0, 3]=1.5', --set b=b.npy, --set 'w[:2]=other::v[5:7]'
    #[arg(long, value_name = "NAME[SLICE]=VALUE|FILE.npy|WORD::NAME", help_heading = "Steps, in the order given")]
    pub(crate) set: Vec<String>,
    /// Add a tensor that is not there
    #[arg(long, value_name = "NAME=FILE.npy|WORD::NAME", help_heading = "Steps, in the order given")]
    pub(crate) add: Vec<String>,
    /// Copy rows, all of them read before any is written: 'A[3,5,7] -> B[0:3]', 'A -> B by map.csv' (or .npy: source
    /// row, target row), 'old::A -> B by old_vocab.txt,vocab.txt' (rows of equal tokens)
    #[arg(long, value_name = "'A[ROWS] -> B[ROWS]'", help_heading = "Steps, in the order given")]
    pub(crate) copy_rows: Vec<String>,
    /// Grow or shrink a tensor along its first axis; FILL is zero, mean, normal:STD,SEED or row:K
    #[arg(long, value_name = "NAME=N:FILL", help_heading = "Steps, in the order given")]
    pub(crate) resize_rows: Vec<String>,
    /// Reverse the order of axes, or give it: --transpose '**/kernel', --transpose 'conv/w:3,2,0,1'
    #[arg(long, value_name = "PATTERN[:AXES]", help_heading = "Steps, in the order given")]
    pub(crate) transpose: Vec<String>,
    /// Give tensors another shape with the same elements; one dimension may be -1
    #[arg(long, value_name = "PATTERN=DIMS", help_heading = "Steps, in the order given")]
    pub(crate) reshape: Vec<String>,
    /// Take axes of one out of the shape, or the one that is named
    #[arg(long, value_name = "PATTERN[@AXIS]", help_heading = "Steps, in the order given")]
    pub(crate) squeeze: Vec<String>,
    /// Keep a part of a tensor
    #[arg(long, value_name = "NAME[SLICE]", help_heading = "Steps, in the order given")]
    pub(crate) slice: Vec<String>,
    /// Join tensors in the order of the one group that the name does not use: --concat 'w/part_(\d+)=w@0',
    /// --concat '(q|k|v)_proj=qkv_proj'; @0x16 joins each of 16 equal blocks by itself: projections fused head by head
    #[arg(long, value_name = "REGEX=NAME[@AXIS]", help_heading = "Steps, in the order given")]
    pub(crate) concat: Vec<String>,
    /// The same along a new axis
    #[arg(long, value_name = "REGEX=NAME[@AXIS]", help_heading = "Steps, in the order given")]
    pub(crate) stack: Vec<String>,
    /// Cut a tensor: PARTS is a count, or lengths (3,4,3), or `like` (as --concat joined it), or `like WORD` (as the
    /// tensors of these names in that input); the template has {i}, or {q,k,v}; /REGEX/ cuts many; @0x16 cuts each of
    /// 16 equal blocks
    #[arg(long, value_name = "NAME=TEMPLATE:PARTS[@AXIS]", help_heading = "Steps, in the order given")]
    pub(crate) split: Vec<String>,
    /// Average all inputs tensor by tensor, or add them with weights: --average=0.9,0.1; --average=1,-1 subtracts
    #[arg(long, value_name = "W1,W2…", num_args = 0..=1, require_equals = true, default_missing_value = "", help_heading = "Steps, in the order given")]
    pub(crate) average: Vec<String>,
    /// Join the tensors of all inputs, shards of one model, each along the axis of the last rule that selects it; what no
    /// rule selects must be equal in all: --join-inputs '**q_proj.weight=0;**o_proj.weight=1', or a table in a file
    #[arg(long, value_name = "PATTERN=AXIS;…|FILE.toml", help_heading = "Steps, in the order given")]
    pub(crate) join_inputs: Vec<String>,
    /// Stop unless names, and dtypes and shapes where given, are exactly those of a list (lines of NAME, DTYPE, SHAPE
    /// between tabs, or what ls --json printed)
    #[arg(long, value_name = "FILE", help_heading = "Steps, in the order given")]
    pub(crate) expect: Vec<String>,
    /// Take the steps of a TOML file, in this place
    #[arg(long, value_name = "FILE.toml", help_heading = "Steps, in the order given")]
    pub(crate) recipe: Vec<String>,

    /// The format to write, whatever the extension says
    #[arg(long, value_name = "tf|pt|safetensors|npz|npy", value_parser = parse_format, help_heading = "Output and checks")]
    pub(crate) to: Option<String>,
    /// What a value beyond the range of its new dtype becomes
    #[arg(long, value_enum, value_name = "POLICY", default_value_t = OnOverflow::Error, help_heading = "Output and checks")]
    pub(crate) on_overflow: OnOverflow,
    /// Whose bits a cast gives: exact rounds once; the others do what these programs do
    #[arg(long, value_enum, value_name = "MANNER", default_value_t = Like::Exact, help_heading = "Output and checks")]
    pub(crate) like: Like,
    /// Write a set of files of at most this size (5GB, 512MiB): safetensors or PyTorch .bin files with their
    /// index, or TensorFlow data files
    #[arg(long, value_name = "SIZE", value_parser = super::show::parse_bytes, help_heading = "Output and checks")]
    pub(crate) shard_size: Option<u64>,
    /// Set metadata of a safetensors file; what is not named stays
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value, help_heading = "Output and checks")]
    pub(crate) metadata: Vec<(String, String)>,
    /// Remove metadata of a safetensors file
    #[arg(long, value_name = "KEY", help_heading = "Output and checks")]
    pub(crate) drop_metadata: Vec<String>,
    /// What becomes of the second names of a tensor
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Ties::Alias, help_heading = "Output and checks")]
    pub(crate) ties: Ties,
    /// How NumPy's files hold bf16, 8-bit floats and half complex, for which NumPy has no type; what they are is recorded
    /// beside them, and read back
    #[arg(long, value_enum, value_name = "FORM", help_heading = "Output and checks")]
    pub(crate) npy_raw: Option<NpyRaw>,
    /// Rewrite only the header of a safetensors file, where the new one fits into its room; OUT is the input itself
    #[arg(long, help_heading = "Output and checks")]
    pub(crate) in_place: bool,
    /// TensorFlow: take over data files whose bytes do not change, unverified; without it by reflink where the file
    /// system has them and no tensor is left out. For safetensors files `copy` copies such tensors by the system
    #[arg(long, value_enum, value_name = "HOW", help_heading = "Output and checks")]
    pub(crate) share: Option<Share>,
    /// TensorFlow: name the output as the latest checkpoint in the file `checkpoint` beside it
    #[arg(long, help_heading = "Output and checks")]
    pub(crate) state_file: bool,
    /// TensorFlow: write an object graph, which tf.train.Checkpoint restores, for tensors without one
    #[arg(long, help_heading = "Output and checks")]
    pub(crate) object_graph: bool,
    /// TensorFlow: write partitioned variables whole
    #[arg(long, help_heading = "Output and checks")]
    pub(crate) join_partitions: bool,
    /// Leave out what the output's format cannot hold, instead of failing
    #[arg(long, help_heading = "Output and checks")]
    pub(crate) skip_unsupported: bool,
    /// Leave out what is no tensor, even where the format could carry it; of a PyTorch file only what
    /// torch.load(weights_only=True) refuses
    #[arg(long, help_heading = "Output and checks")]
    pub(crate) weights_only: bool,
    /// Let --copy-rows and --resize-rows take along what belongs to the tensor: tensors tied to it, its optimizer
    /// slots (PyTorch's numbered states too), and output layers and biases with as many rows
    #[arg(long, help_heading = "Output and checks")]
    pub(crate) with_related: bool,
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
    /// Find tensors with equal values, by reading all once more, and write them once, tied
    #[arg(long, help_heading = "Output and checks")]
    pub(crate) dedupe: bool,
    /// Hold at most so much in memory (64MiB, 2GB): smaller tiles, then fewer threads [default: no limit; plan shows it]
    #[arg(long, value_name = "SIZE", value_parser = super::show::parse_bytes, help_heading = "Output and checks")]
    pub(crate) max_memory: Option<u64>,
    /// Number of worker threads [default: one a processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..), help_heading = "Output and checks")]
    pub(crate) threads: Option<u16>,
    /// Who does bulk casts and row copies: auto (the faster, tried from 1 GiB on), cpu, gpu or gpu:N (see `devices`); the
    /// bytes are the same
    #[arg(long, value_name = "DEVICE", value_parser = parse_device, default_value = "auto", help_heading = "Output and checks")]
    pub(crate) device: weightlift::DeviceChoice,
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
    #[command(flatten)]
    pub(crate) opening: OpenArgs,
}

/// `KEY=VALUE`, cut at the first `=`.
fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE; --drop-metadata KEY removes one")?;
    Ok((key.to_owned(), value.to_owned()))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum NpyRaw {
    /// Unsigned integers of the same bits
    Bits,
    /// Widened to f32 (half complex to c64)
    F32,
    /// Raw bytes, as ml_dtypes saves them: array.view(ml_dtypes.bfloat16) in Python
    #[value(name = "ml_dtypes")]
    MlDtypes,
}

impl From<NpyRaw> for weightlift::NpyRaw {
    fn from(raw: NpyRaw) -> weightlift::NpyRaw {
        match raw {
            NpyRaw::Bits => weightlift::NpyRaw::Bits,
            NpyRaw::F32 => weightlift::NpyRaw::F32,
            NpyRaw::MlDtypes => weightlift::NpyRaw::MlDtypes,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Ties {
    /// Bytes are written once; safetensors files and indexes record each name with the one it is tied to
    Alias,
    /// Every name is written in full
    Copy,
    /// Only the first name is written (safetensors)
    First,
}

impl From<Ties> for weightlift::Ties {
    fn from(ties: Ties) -> weightlift::Ties {
        match ties {
            Ties::Alias => weightlift::Ties::Alias,
            Ties::Copy => weightlift::Ties::Copy,
            Ties::First => weightlift::Ties::First,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// Write the steps to this recipe, for --recipe
    #[arg(short, long, value_name = "RECIPE.toml", help_heading = "Output and checks")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) convert: ConvertArgs,
}

impl ConvertArgs {
    /// The inputs, and the output behind them.
    pub(crate) fn inputs(&self) -> (&[PathBuf], &Path) {
        self.paths.split_last().map_or((&[], Path::new("")), |(output, inputs)| (inputs, output))
    }
}

/// A format to write.
fn parse_format(text: &str) -> Result<String, String> {
    match text {
        "tf" | "pt" | "safetensors" | "npz" | "npy" => Ok(text.to_owned()),
        "tf1" | "v1" | "tf-v1" | "tf_v1" => Err("version 1 of TensorFlow's checkpoints is read and never written; \
             tf writes version 2, which TensorFlow 1 reads too"
            .to_owned()),
        _ => Err("there are tf, pt, safetensors, npz and npy".to_owned()),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Share {
    /// Clones that share their bytes until either changes; copied by the system where there are none
    Reflink,
    /// The same files under other names
    Hardlink,
    /// Copied by the system
    Copy,
    /// None: everything is read, verified and written
    None,
}

impl From<Share> for weightlift::Share {
    fn from(share: Share) -> weightlift::Share {
        match share {
            Share::Reflink => weightlift::Share::Reflink,
            Share::Hardlink => weightlift::Share::HardLink,
            Share::Copy => weightlift::Share::Copy,
            Share::None => weightlift::Share::Never,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnOverflow {
    /// Write nothing, and name the tensors and counts
    Error,
    /// The new dtype's infinity, or its NaN where it has none
    Inf,
    /// The largest finite value
    Saturate,
    /// The tensor stays in its dtype; every tensor to cast is read once more, to measure it
    Keep,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Like {
    /// One rounding, to nearest, ties to even
    Exact,
    /// PyTorch's
    Torch,
    /// TensorFlow's
    Tf,
    /// NumPy's with ml_dtypes
    Numpy,
}

impl From<Like> for weightlift::Like {
    fn from(like: Like) -> weightlift::Like {
        match like {
            Like::Exact => weightlift::Like::Exact,
            Like::Torch => weightlift::Like::Torch,
            Like::Tf => weightlift::Like::TensorFlow,
            Like::Numpy => weightlift::Like::NumPy,
        }
    }
}

impl From<OnOverflow> for weightlift::OnOverflow {
    fn from(policy: OnOverflow) -> weightlift::OnOverflow {
        match policy {
            OnOverflow::Error => weightlift::OnOverflow::Error,
            OnOverflow::Inf => weightlift::OnOverflow::Inf,
            OnOverflow::Saturate => weightlift::OnOverflow::Saturate,
            OnOverflow::Keep => weightlift::OnOverflow::Keep,
        }
    }
}

/// `auto`, `cpu`, `gpu` or `gpu:N`.
fn parse_device(text: &str) -> Result<weightlift::DeviceChoice, String> {
    use weightlift::DeviceChoice;
    match text.split_once(':') {
        None if text == "auto" => Ok(DeviceChoice::Auto),
        None if text == "cpu" => Ok(DeviceChoice::Processor),
        None if text == "gpu" => Ok(DeviceChoice::Gpu(None)),
        Some(("gpu", number)) if number.parse::<usize>().is_ok() => Ok(DeviceChoice::Gpu(number.parse().ok())),
        _ => Err("expected auto, cpu, gpu or gpu:N, N as `weightlift devices` counts".to_owned()),
    }
}
