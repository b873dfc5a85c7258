//! Writing an edited checkpoint in any format.

use crate::device::DeviceChoice;
use crate::numpy::{self, NpyRaw};
use crate::open::{Opened, formats, open_in};
use std::path::{Path, PathBuf};
use weightlift_convert::{Conversion, Input, Options, ParameterOrder, Plan, Progress, Report, Resolved, Target};
use weightlift_core::{Error, FileId, Format, OpenOptions, Result, Share, Ties};

/// How a checkpoint is saved.
#[derive(Debug, Clone, Default)]
pub struct SaveOptions {
    /// The [`Format::id`] to write; without it the path decides, see [`choose_format`].
    pub to: Option<String>,
    /// Threads, overflow policy, verification, replacement.
    pub options: Options,
    /// The most bytes that the work may hold in memory.
    pub max_memory: Option<u64>,
    /// Leaves out what the target cannot hold instead of failing.
    pub skip_unsupported: bool,
    /// Lets views grow more than 1000-fold when they are written dense.
    pub allow_expand: bool,
    /// Leaves out what is no tensor, even where the format could carry it; of the objects in a PyTorch file only those
    /// that `torch.load(weights_only=True)` refuses.
    pub weights_only: bool,
    /// Keeps the whole storage that tensors are views of, from PyTorch to PyTorch, instead of what they reach of it.
    pub keep_storages: bool,
    /// Writes whole what comes in pieces that the format could keep.
    pub join_partitions: bool,
    /// Leaves out tensors whose values are damaged and names them in the report, instead of failing.
    pub salvage: bool,
    /// Who does bulk casts and row copies.
    pub device: DeviceChoice,
    /// How NumPy's files hold what NumPy has no type for; without it that is refused.
    pub npy_raw: Option<NpyRaw>,
}

/// The formats that are written as several files where that is asked for.
const SHARDED: [&str; 3] = ["safetensors", "tf", "pt"];

impl Opened {
    /// What a plan would write to `output`, without touching a tensor.
    ///
    /// # Errors
    /// `Request` with everything that does not work out.
    pub fn resolve(&self, plan: &Plan, output: &Path, save: &SaveOptions) -> Result<(Resolved, Target)> {
        let arrays = self.arrays(plan)?;
        let (resolved, target) = self.resolve_with(&arrays, plan, output, save)?;
        let manifest = weightlift_convert::manifest(&resolved, &self.inputs(&arrays), &target)?;
        by_id(target.id)?.check(output, manifest, &save.options.for_writer(&target))?;
        Ok((resolved, target))
    }

    /// The checkpoints that a plan reads, the one that is edited first.
    fn inputs<'a>(&'a self, arrays: &'a [(String, Opened)]) -> Vec<Input<'a>> {
        let others = self.others.iter().chain(arrays).map(|(word, opened)| Input::new(word, opened.catalog()));
        std::iter::once(Input::new(&self.word, self.catalog())).chain(others).collect()
    }

    /// How the optimizers of the inputs number parameters, where a step follows them.
    fn orders(&self, plan: &Plan) -> Vec<Vec<ParameterOrder>> {
        if !plan.follows_optimizers() {
            return Vec::new();
        }
        let opened = std::iter::once(self).chain(self.others.iter().map(|(_, other)| other));
        opened.map(|opened| ParameterOrder::find(&opened.checkpoint.objects())).collect()
    }

    fn resolve_with(
        &self,
        arrays: &[(String, Opened)],
        plan: &Plan,
        output: &Path,
        save: &SaveOptions,
    ) -> Result<(Resolved, Target)> {
        let format = choose_format(save.to.as_deref(), output, self)?;
        let mut target = target(format, save)?;
        let plan = &numpy::prepare(plan, &mut target, self.catalog(), save.npy_raw)?;
        let orders = self.orders(plan);
        let mut inputs = self.inputs(arrays);
        inputs.iter_mut().zip(&orders).for_each(|(input, orders)| input.orders = orders);
        let resolved = plan.resolve(&inputs, &target);
        let mut resolved = resolved.map_err(|error| numpy::hint(error, &target, self.catalog(), save.npy_raw))?;
        if let Some(extras) = self.catalog().extras.as_ref().filter(|_| resolved.carries_extras) {
            resolved.not_carried.extend(format.left_behind(extras, &save.options.for_writer(&target))?);
        }
        let catalog = self.catalog();
        if let Some(form) = catalog.comes_out.filter(|_| format.id() == catalog.format) {
            resolved.notes.push(format!("the {} comes out as {form}", catalog.description));
        }
        resolved.castable_like(save.options.like)?;
        Ok((resolved, target))
    }

    /// The arrays that steps name, opened, each under its path as its word.
    fn arrays(&self, plan: &Plan) -> Result<Vec<(String, Opened)>> {
        let mut opened = Vec::new();
        for (path, certain) in plan.arrays() {
            // Of several files that an argument could mean, those that are none it does not mean.
            match open_in(self.files.clone(), Path::new(path), &OpenOptions::default()) {
                Ok(array) => opened.push((path.to_owned(), array)),
                Err(error) if certain => return Err(error),
                Err(_) => {}
            }
        }
        Ok(opened)
    }

    /// Carries out a plan. The input changes only where `output` is the input itself.
    ///
    /// # Errors
    /// As [`Opened::resolve`] and [`weightlift_convert::convert`]; nothing bears the output's name then.
    pub fn save(&self, plan: &Plan, output: impl AsRef<Path>, save: &SaveOptions) -> Result<Report> {
        self.save_with(plan, output.as_ref(), save, &())
    }

    /// The same, with progress.
    ///
    /// # Errors
    /// As [`Opened::save`].
    pub fn save_with(&self, plan: &Plan, output: &Path, save: &SaveOptions, progress: &dyn Progress) -> Result<Report> {
        let arrays = self.arrays(plan)?;
        let (resolved, target) = self.resolve_with(&arrays, plan, output, save)?;
        let format = by_id(target.id)?;
        let own = self.is_input(output, format);
        if format.id() != "npy" && output.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return Err(Error::request("names a folder: give a file name in it").in_file(output));
        }
        self.check_output(output, own, &resolved, save)?;
        if save.options.shard_size.is_some() && !SHARDED.contains(&format.id()) {
            let message = format!(
                "a {} is written as one file; sets of files are written as safetensors, PyTorch .bin files or \
                 TensorFlow checkpoints",
                format.name()
            );
            return Err(Error::request(message));
        }
        self.check_writer_options(output, own, format, save)?;
        only_tensorflow(format, &save.options)?;
        let mut options = save.options.clone();
        let chosen = save.device.open(&resolved, &options)?;
        if let Some(chosen) = &chosen {
            options.accelerator = Some(chosen.accelerator.clone());
        }
        if let Some(most) = save.max_memory {
            options.fit_memory(&resolved, most)?;
        }
        options.replace |= own;
        if let Some(raw) = save.npy_raw {
            options.output.nameless = raw.form();
            numpy::widened(&resolved, &mut options.output);
        }
        let files = self.files.clone();
        let others = self.others.iter().chain(&arrays).map(|(_, other)| other.checkpoint());
        let inputs: Vec<_> = std::iter::once(self.checkpoint()).chain(others).collect();
        let conversion = Conversion { files, inputs: &inputs, format, target: &target, output };
        let report = weightlift_convert::convert(&conversion, resolved, &options, progress)?;
        if let (Some(chosen), Some(of_device)) = (&chosen, &report.device) {
            chosen.keep(of_device);
        }
        Ok(report)
    }

    /// Refuses what only some formats can be told.
    fn check_writer_options(&self, output: &Path, own: bool, format: &dyn Format, save: &SaveOptions) -> Result<()> {
        let told = &save.options.output;
        let for_safetensors = [
            (!told.metadata.is_empty(), "--metadata"),
            (told.ties == Ties::First, "--ties first"),
            (told.in_place, "--in-place"),
        ];
        if let Some((_, flag)) = for_safetensors.iter().find(|(told, _)| *told && format.id() != "safetensors") {
            return Err(Error::request(format!("{flag} is for safetensors files, but a {} is written", format.name())));
        }
        if told.in_place && !own {
            let error = Error::request("--in-place changes the input itself: name it as the output too");
            return Err(error.in_file(output));
        }
        Ok(())
    }

    /// Whether an output path names this checkpoint itself: its one file, or the index of its set where a set of the
    /// same kind will be written.
    fn is_input(&self, output: &Path, format: &dyn Format) -> bool {
        let own = self.checkpoint.files();
        let is_index =
            |path: &&PathBuf| path.extension().is_some_and(|e| e == "index" || e == "json" || e == "metadata");
        let named = match own.as_slice() {
            [only] => Some(only),
            several if format.id() == self.format.id() => several.iter().find(is_index),
            _ => None,
        };
        let Some(named) = named.and_then(|path| self.identity(path)) else { return false };
        let with_index = PathBuf::from(format!("{}.index", output.display()));
        [output, &with_index].into_iter().any(|path| self.identity(path) == Some(named))
    }

    fn identity(&self, path: &Path) -> Option<FileId> {
        self.files.stat(path).ok().map(|stat| stat.id)
    }

    /// Refuses outputs that would cost the input something: a part of its set, or tensors that are left out.
    fn check_output(&self, output: &Path, own: bool, resolved: &Resolved, save: &SaveOptions) -> Result<()> {
        let there = self.identity(output);
        let is_part = |input: &Opened| input.checkpoint.files().iter().any(|file| self.identity(file) == there);
        let of_another = self.others.iter().any(|(_, other)| is_part(other));
        if there.is_some() && (of_another || (is_part(self) && !own)) {
            return Err(Error::request("is a part of the input, which needs it: write to another name").in_file(output));
        }
        if own && !resolved.left_out.is_empty() && !save.options.replace {
            let count = resolved.left_out.len();
            let error = Error::request(format!("the input would be replaced without {count} of its tensors"));
            return Err(error.in_file(output).help("--force replaces it; another name keeps both"));
        }
        Ok(())
    }
}

/// Refuses what only one format knows.
fn only_tensorflow(format: &dyn Format, options: &Options) -> Result<()> {
    let shares = !matches!(options.output.share, Share::Auto | Share::Never);
    // The system copies ranges of any file; whole data files are TensorFlow's alone.
    let by_ranges = format.id() == "safetensors" && options.output.share == Share::Copy;
    if shares && !by_ranges && options.shard_size.is_some() {
        let error = Error::request("--shard-size cuts the data anew, so that no data file can be shared");
        return Err(error.help("leave out --share or --shard-size"));
    }
    let asked = [
        ("--share", shares && !by_ranges),
        ("--state-file", options.output.state_file),
        ("--object-graph", options.output.object_graph),
    ];
    match asked.iter().find(|(_, asked)| *asked && format.id() != "tf") {
        Some((flag, _)) => {
            Err(Error::request(format!("{flag} is for TensorFlow checkpoints; the output is a {}", format.name())))
        }
        None => Ok(()),
    }
}

fn target(format: &'static dyn Format, save: &SaveOptions) -> Result<Target> {
    let mut capabilities = format
        .capabilities()
        .ok_or_else(|| Error::request(format!("{} files are read but not written", format.name())))?;
    if save.options.output.nest.is_some() && !capabilities.nests {
        let error = Error::request(format!("--nest: a {} has no dict to put the tensors into", format.name()));
        return Err(error.help("--add-prefix puts a word before every name"));
    }
    capabilities.shares_storage &= save.options.output.ties != Ties::Copy;
    Ok(Target {
        id: format.id(),
        name: format.name(),
        capabilities,
        skip_unsupported: save.skip_unsupported,
        allow_expand: save.allow_expand,
        weights_only: save.weights_only,
        keep_storages: save.keep_storages,
        join_partitions: save.join_partitions,
        salvage: save.salvage,
    })
}

fn by_id(id: &str) -> Result<&'static dyn Format> {
    let known = || formats().iter().map(|format| format.id()).collect::<Vec<_>>().join(", ");
    let found = formats().iter().copied().find(|format| format.id() == id);
    found.ok_or_else(|| Error::request(format!("no format is called {id:?}; there are {}", known())))
}

/// The format of an output: the one named; else by its extension; else the input's where both have the same
/// extension; else TensorFlow for `.ckpt`, `.ckpt-N` and no extension.
///
/// # Errors
/// `Request` for an unknown name or extension.
pub fn choose_format(to: Option<&str>, output: &Path, input: &Opened) -> Result<&'static dyn Format> {
    if let Some(id) = to {
        return by_id(id);
    }
    let extension = |path: &Path| path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
    let Some(wanted) = extension(output) else { return by_id("tf") };
    if let Some(format) = formats().iter().copied().find(|format| format.extensions().contains(&wanted.as_str())) {
        return Ok(format);
    }
    if extension(input.path()).as_ref() == Some(&wanted) {
        return Ok(input.format());
    }
    let numbered = wanted.strip_prefix("ckpt-").is_some_and(|step| step.bytes().all(|byte| byte.is_ascii_digit()));
    if wanted == "ckpt" || numbered {
        return by_id("tf");
    }
    Err(Error::request(format!("the extension .{wanted} names no format"))
        .in_file(output)
        .help("--to tf, pt, safetensors, npz or npy says which"))
}
