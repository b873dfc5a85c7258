//! The zip container: `NAME/data.pkl` and a record per storage.

use crate::checkpoint::{Objects, STATE_DICT};
use crate::export;
use crate::list::{Lister, checksum};
use crate::pickle::{Graph, Machine, NodeId, Nothing};
use crate::source::{Decoder, Spaces};
use crate::storage::{Records, Stored};
use foldhash::{HashMap, HashMapExt};
use weightlift_archive::{Archive, Member, Method, read_member};
use weightlift_core::{ByteOrder, ByteRange, Error, Limits, OpenOptions, Result, SourceId};
use weightlift_io::FileSource;

/// The newest `version` record that PyTorch takes.
const NEWEST: u32 = 10;

/// The folder of a `torch.save` archive: that of `data.pkl`. Members outside of it are somebody else's.
pub(crate) fn root(archive: &Archive) -> Option<&str> {
    let names = archive.members().iter().map(|member| member.name.as_str());
    let roots = names.filter_map(|name| name.strip_suffix("data.pkl"));
    let mut roots = roots.filter(|root| root.is_empty() || root.find('/') == Some(root.len() - 1));
    roots.next()
}

/// A small text record, such as `byteorder`.
fn text(source: &FileSource, archive: &Archive, name: &str, limits: &Limits) -> Result<Option<String>> {
    match archive.find(name)? {
        Some(member) => {
            let bytes = read_member(source, member, limits, 1 << 10)?;
            Ok(Some(String::from_utf8_lossy(&bytes).trim().to_owned()))
        }
        None => Ok(None),
    }
}

pub(crate) fn byte_order(source: &FileSource, archive: &Archive, root: &str, limits: &Limits) -> Result<ByteOrder> {
    match text(source, archive, &format!("{root}byteorder"), limits)?.as_deref() {
        None | Some("little") => Ok(ByteOrder::Little),
        Some("big") => Ok(ByteOrder::Big),
        Some(other) => Err(Error::malformed(format!("byte order {other:?}; little and big are known"))),
    }
}

fn version_warning(version: &str) -> Option<String> {
    match version.parse::<u32>() {
        Ok(1..=NEWEST) => None,
        _ => Some(format!("the archive says it has version {version:?}; 1 to {NEWEST} are known")),
    }
}

/// A pickle in a member: its graph and root.
pub(crate) fn pickle(source: &FileSource, member: &Member, limits: &Limits) -> Result<(Graph, NodeId)> {
    let bytes = read_member(source, member, limits, limits.header_bytes)?;
    let base = member.plain().map(ByteRange::start);
    let mut machine = Machine::new(bytes, Nothing, limits, base);
    let root = machine.load().map_err(|error| match base {
        Some(_) => error,
        None => error.help(format!("in member {:?}", member.name)),
    })?;
    Ok((machine.finish(), root))
}

/// The storages of an archive: one record each.
pub(crate) struct ZipRecords<'a> {
    pub(crate) archive: &'a Archive,
    /// The folder of the records, with its slash.
    pub(crate) folder: String,
    pub(crate) file: SourceId,
    /// Deflated records, each decoded as a source of its own.
    pub(crate) decoded: HashMap<String, Stored>,
    /// The name of the last record, its room used again.
    name: String,
    /// The member behind the last one found: records mostly follow one another.
    next: usize,
}

impl<'a> ZipRecords<'a> {
    pub(crate) fn new(archive: &'a Archive, folder: String, file: SourceId) -> ZipRecords<'a> {
        ZipRecords { archive, folder, file, decoded: HashMap::new(), name: String::new(), next: 0 }
    }
}

impl Records for ZipRecords<'_> {
    fn record(&mut self, key: &str, spaces: &mut Spaces) -> Result<Stored> {
        self.name.clone_from(&self.folder);
        self.name.push_str(key);
        let name = &self.name;
        let found = self.archive.find_near(name, self.next)?;
        let (at, member) = found.ok_or_else(|| Error::malformed(format!("the zip has no record {name:?}")))?;
        self.next = at + 1;
        member.check_method()?;
        if let Some(bytes) = member.plain() {
            return Ok(Stored { source: self.file, bytes, checksum: checksum(member.crc) });
        }
        if let Some(&stored) = self.decoded.get(key) {
            return Ok(stored);
        }
        let source = spaces.add_decoded(name.clone(), member.len, Decoder::Member(member.clone()), self.file);
        let stored = Stored { source, bytes: ByteRange::new(0, member.len)?, checksum: checksum(member.crc) };
        self.decoded.insert(key.to_owned(), stored);
        Ok(stored)
    }
}

/// Reads a zip that takes a whole file.
pub(crate) fn load(spaces: &mut Spaces, file: SourceId, options: &OpenOptions) -> Result<Objects> {
    let source = spaces.file(file)?.clone();
    let range = ByteRange::new(0, source.len())?;
    let mut load = |archive: &Archive| match export::kind(archive) {
        Some(kind) => export::Reader { source: &source, archive, file, spaces, options }.load(kind),
        None => load_archive(&source, spaces, file, archive, options),
    };
    let loaded = Archive::read_in(&source, range, &options.limits).and_then(|archive| load(&archive));
    loaded.map_err(|error| error.in_file(source.path()))
}

/// Reads a zip of `torch.save` that takes a part of a file. Those that hold archives themselves stand in no other.
pub(crate) fn load_part(
    spaces: &mut Spaces,
    file: SourceId,
    range: ByteRange,
    options: &OpenOptions,
) -> Result<Objects> {
    let source = spaces.file(file)?.clone();
    let archive = Archive::read_in(&source, range, &options.limits);
    let loaded = archive.and_then(|archive| load_archive(&source, spaces, file, &archive, options));
    loaded.map_err(|error| error.in_file(source.path()))
}

fn load_archive(
    source: &FileSource,
    spaces: &mut Spaces,
    file: SourceId,
    archive: &Archive,
    options: &OpenOptions,
) -> Result<Objects> {
    let limits = &options.limits;
    let Some(folder) = root(archive) else {
        return Err(Error::malformed("a zip without data.pkl: torch.save did not write it"));
    };
    let main = archive.find(&format!("{folder}data.pkl"))?;
    let main = main.ok_or_else(|| Error::malformed("the zip has no data.pkl"))?;
    let (graph, root) = pickle(source, main, limits)?;
    let order = byte_order(source, archive, folder, limits)?;
    let version = text(source, archive, &format!("{folder}version"), limits)?;
    let warnings = version.as_deref().and_then(version_warning).into_iter().collect();
    let records = &mut ZipRecords::new(archive, format!("{folder}data/"), file);
    let mut lister = Lister { graph: &graph, records, spaces, order, options, outside: &HashMap::new() };
    let (listing, storages) = lister.list(root)?;
    let script = archive.find(&format!("{folder}constants.pkl"))?.is_some();
    let description = description(archive, order, script);
    let comes_out = script.then_some(STATE_DICT);
    Ok(Objects { description, warnings, returns: !script, comes_out, graph, root, listing, storages, order })
}

fn description(archive: &Archive, order: ByteOrder, script: bool) -> &'static str {
    let deflated = archive.members().iter().any(|member| member.method == Method::Deflated);
    match (script, order, deflated) {
        (true, ..) => "TorchScript archive",
        (false, ByteOrder::Big, _) => "PyTorch checkpoint (zip, big-endian)",
        (false, ByteOrder::Little, true) => "PyTorch checkpoint (zip, deflated)",
        (false, ByteOrder::Little, false) => "PyTorch checkpoint (zip)",
    }
}
