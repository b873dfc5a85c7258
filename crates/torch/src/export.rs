//! Archives that keep tensors as bare records with a description in JSON: programs of `torch.export` (`.pt2`), and
//! TorchScript as PyTorch 1.0 wrote it. Their weights are read; the programs are not.

use crate::checkpoint::{Objects, STATE_DICT};
use crate::list::{Listing, checksum};
use crate::pickle::parse;
use crate::source::{Decoder, Spaces};
use crate::zip;
use foldhash::{HashMap, HashMapExt};
use serde_json::Value;
use weightlift_archive::{Archive, Member, read_member};
use weightlift_core::{
    ByteOrder, ByteRange, DType, Entry, Error, Extent, KeyPath, Layout, OpenOptions, Result, Shape, SourceId,
};
use weightlift_io::FileSource;

const WEIGHTS: &str = "data/weights/";
const CONSTANTS: &str = "data/constants/";
const CONFIG: &str = "_weights_config.json";
const CONSTANTS_CONFIG: &str = "_constants_config.json";
/// Records of weights that are archives of `torch.save` themselves: of PyTorch 2.1 to 2.7, and of pickled models.
const NESTED: [&str; 3] = ["serialized_state_dict.pt", "serialized_state_dict.json", "data/weights/model.pt"];
/// How deep the modules of an old program may nest.
const DEEPEST: usize = 200;

/// What kind of such an archive a zip is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Of `torch.export`; its folder.
    Export(String),
    /// Of `torch.export`, the weights a whole archive in this member.
    Nested(String),
    /// Of PyTorch 1.0; its folder.
    Script(String),
}

/// The kind of an archive that has no pickle of its weights.
pub(crate) fn kind(archive: &Archive) -> Option<Kind> {
    let names = || archive.members().iter().map(|member| member.name.as_str());
    let folder = |name: &str, rest: &str| Some(name[..name.find(rest)?].to_owned());
    let config = names().find(|name| name.contains(WEIGHTS) && name.ends_with(CONFIG));
    if let Some(folder) = config.and_then(|name| folder(name, WEIGHTS)) {
        return Some(Kind::Export(folder));
    }
    if let Some(name) = names().find(|name| NESTED.iter().any(|nested| name.ends_with(nested))) {
        return Some(Kind::Nested(name.to_owned()));
    }
    let model = names().find(|name| name.strip_suffix("model.json").is_some_and(|root| root.matches('/').count() == 1));
    let root = model.and_then(|name| folder(name, "model.json"))?;
    names().any(|name| name.starts_with(&format!("{root}tensors/"))).then_some(Kind::Script(root))
}

/// The archive as it is read.
pub(crate) struct Reader<'a> {
    pub(crate) source: &'a FileSource,
    pub(crate) archive: &'a Archive,
    pub(crate) file: SourceId,
    pub(crate) spaces: &'a mut Spaces,
    pub(crate) options: &'a OpenOptions,
}

/// A tensor as the JSON has it.
struct Described {
    dtype: DType,
    shape: Shape,
    layout: Layout,
}

impl Reader<'_> {
    /// Reads the weights.
    ///
    /// # Errors
    /// `Malformed`, naming the tensor, where a record is missing or too short or the JSON makes no sense.
    pub(crate) fn load(mut self, kind: Kind) -> Result<Objects> {
        let (description, order, listing) = match kind {
            Kind::Export(folder) => {
                let order = zip::byte_order(self.source, self.archive, &folder, &self.options.limits)?;
                ("PyTorch program of torch.export (.pt2)", order, self.export(&folder, order)?)
            }
            Kind::Script(folder) => ("TorchScript archive of PyTorch 1.0", ByteOrder::Little, self.script(&folder)?),
            Kind::Nested(name) => return self.nested(&name),
        };
        let (graph, root) = parse(b"N.".to_vec(), &self.options.limits)?;
        let (warnings, storages) = (Vec::new(), HashMap::new());
        Ok(Objects {
            description,
            warnings,
            returns: false,
            comes_out: Some(STATE_DICT),
            graph,
            root,
            listing,
            storages,
            order,
        })
    }

    fn nested(self, name: &str) -> Result<Objects> {
        let member = self.member(name)?;
        let range = member.plain().ok_or_else(|| Error::unsupported(format!("{name:?} is compressed")))?;
        let inner = zip::load_part(self.spaces, self.file, range, self.options)?;
        let description = "PyTorch program of torch.export (.pt2)";
        Ok(Objects { description, returns: false, comes_out: Some(STATE_DICT), ..inner })
    }

    fn member(&self, name: &str) -> Result<&Member> {
        self.archive.find(name)?.ok_or_else(|| Error::malformed(format!("the zip has no record {name:?}")))
    }

    fn json(&self, name: &str) -> Result<Value> {
        let limits = &self.options.limits;
        let bytes = read_member(self.source, self.member(name)?, limits, limits.header_bytes)?;
        serde_json::from_slice(&bytes).map_err(|error| Error::malformed(format!("{name:?} is no JSON: {error}")))
    }

    fn export(&mut self, folder: &str, order: ByteOrder) -> Result<Listing> {
        let mut listing = Listing::default();
        let models = self.models(folder, WEIGHTS, CONFIG);
        for (model, config) in &models {
            let prefix = if models.len() > 1 { format!("{model}.") } else { String::new() };
            let config = self.json(config)?;
            for (name, payload) in config["config"].as_object().into_iter().flatten() {
                let name = format!("{prefix}{name}");
                let entry = self.weight(&name, payload, folder, order).map_err(|error| error.in_tensor(&name));
                listing.push(entry, KeyPath::flat(name), self.options.salvage)?;
            }
            listing.beside.push(format!("the program of {model}"));
        }
        for (_, config) in self.models(folder, CONSTANTS, CONSTANTS_CONFIG) {
            let config = self.json(&config)?;
            let names = config["config"].as_object().into_iter().flatten().map(|(name, _)| name);
            listing.beside.extend(names.map(|name| format!("constant {name}")));
        }
        Ok(listing)
    }

    /// The configurations in a folder: model and record.
    fn models(&self, folder: &str, part: &str, end: &str) -> Vec<(String, String)> {
        let start = format!("{folder}{part}");
        let model = |member: &Member| {
            let model = member.name.strip_prefix(&start)?.strip_suffix(end)?;
            Some((model.to_owned(), member.name.clone()))
        };
        self.archive.members().iter().filter_map(model).collect()
    }

    fn weight(&mut self, name: &str, payload: &Value, folder: &str, order: ByteOrder) -> Result<Entry> {
        let record = payload["path_name"].as_str().ok_or_else(|| Error::malformed("it names no record"))?;
        let record = format!("{folder}{WEIGHTS}{record}");
        if payload["use_pickle"] == Value::Bool(true) {
            return self.pickled(name, &record);
        }
        let meta = &payload["tensor_meta"];
        let dtype = meta["dtype"].as_u64().and_then(scalar_type);
        let dtype = dtype.ok_or_else(|| Error::unsupported(format!("a tensor of scalar type {}", meta["dtype"])))?;
        let described = Described {
            dtype,
            shape: Shape::new(naturals(&meta["sizes"])?)?,
            layout: Layout { offset: natural(&meta["storage_offset"])?, strides: naturals(&meta["strides"])? },
        };
        self.entry(name, &record, described, order)
    }

    /// A tensor of a class of its own, which is a whole archive of `torch.save`.
    fn pickled(&mut self, name: &str, record: &str) -> Result<Entry> {
        let range = self.member(record)?.plain();
        let range = range.ok_or_else(|| Error::unsupported(format!("{record:?} is compressed")))?;
        let inner = zip::load_part(self.spaces, self.file, range, self.options)?;
        match <[Entry; 1]>::try_from(inner.listing.entries) {
            Ok([entry]) => Ok(Entry { path: KeyPath::flat(name), name: name.to_owned(), ..entry }),
            Err(entries) => Err(Error::malformed(format!("{record:?} has {} tensors instead of one", entries.len()))),
        }
    }

    fn entry(&mut self, name: &str, record: &str, tensor: Described, order: ByteOrder) -> Result<Entry> {
        let member = self.member(record)?;
        member.check_method()?;
        let sum = checksum(member.crc);
        let (source, bytes) = match member.plain() {
            Some(bytes) => (self.file, bytes),
            None => {
                let decoder = Decoder::Member(member.clone());
                let (len, label) = (member.len, record.to_owned());
                (self.spaces.add_decoded(label, len, decoder, self.file), ByteRange::new(0, len)?)
            }
        };
        let Described { dtype, shape, layout } = tensor;
        let mut extent = Extent::strided(source, bytes, dtype, &shape, layout)?.with_order(order);
        extent.checksum = sum;
        Entry::new(KeyPath::flat(name), dtype, shape, vec![extent])
    }

    fn script(&mut self, folder: &str) -> Result<Listing> {
        let model = self.json(&format!("{folder}model.json"))?;
        let mut listing = Listing::default();
        let mut pending = vec![(String::new(), &model["mainModule"], 0)];
        while let Some((prefix, module, depth)) = pending.pop() {
            if depth > DEEPEST {
                return Err(Error::limit(format!("modules nest deeper than {DEEPEST}")));
            }
            let named = |value: &Value| Some(format!("{prefix}{}", value["name"].as_str()?));
            for parameter in module["parameters"].as_array().into_iter().flatten() {
                let Some(name) = named(parameter) else { continue };
                let tensor = natural(&parameter["tensorId"]).ok().and_then(|id| model["tensors"].get(id as usize));
                let entry = match tensor {
                    Some(tensor) => self.script_tensor(&name, tensor, folder),
                    None => Err(Error::malformed("it names no tensor")),
                };
                let entry = entry.map_err(|error| error.in_tensor(&name));
                listing.push(entry, KeyPath::flat(name), self.options.salvage)?;
            }
            for inner in module["submodules"].as_array().into_iter().flatten().rev() {
                pending.extend(named(inner).map(|name| (format!("{name}."), inner, depth + 1)));
            }
        }
        listing.beside.push("the program".into());
        Ok(listing)
    }

    fn script_tensor(&mut self, name: &str, tensor: &Value, folder: &str) -> Result<Entry> {
        let dtype = tensor["dataType"].as_str().and_then(data_type);
        let dtype = dtype.ok_or_else(|| Error::unsupported(format!("a tensor of type {}", tensor["dataType"])))?;
        let key = tensor["data"]["key"].as_str().ok_or_else(|| Error::malformed("it names no record"))?;
        let offset = if tensor["offset"].is_null() { 0 } else { natural(&tensor["offset"])? };
        let described = Described {
            dtype,
            shape: Shape::new(naturals(&tensor["dims"])?)?,
            layout: Layout { offset, strides: naturals(&tensor["strides"])? },
        };
        self.entry(name, &format!("{folder}{key}"), described, ByteOrder::Little)
    }
}

/// A number, a number in quotes, or `{"as_int": number}`.
fn natural(value: &Value) -> Result<u64> {
    let value = if value["as_int"].is_null() { value } else { &value["as_int"] };
    let number = value.as_u64().or_else(|| value.as_str()?.parse().ok()).filter(|&number| number <= i64::MAX as u64);
    number.ok_or_else(|| Error::malformed(format!("{value} is no size")))
}

/// A list of them; none where there is none.
fn naturals(value: &Value) -> Result<Vec<u64>> {
    value.as_array().into_iter().flatten().map(natural).collect()
}

/// The numbers of `torch.export`.
fn scalar_type(number: u64) -> Option<DType> {
    Some(match number {
        1 => DType::U8,
        2 => DType::I8,
        3 => DType::I16,
        4 => DType::I32,
        5 => DType::I64,
        6 => DType::F16,
        7 => DType::F32,
        8 => DType::F64,
        9 => DType::C32,
        10 => DType::C64,
        11 => DType::C128,
        12 => DType::Bool,
        13 => DType::Bf16,
        28 => DType::U16,
        29 => DType::F8E4m3fn,
        30 => DType::F8E5m2,
        31 => DType::F8E4m3fnuz,
        32 => DType::F8E5m2fnuz,
        33 => DType::F8E8m0fnu,
        34 => DType::U32,
        35 => DType::U64,
        _ => return None,
    })
}

/// The words of PyTorch 1.0.
fn data_type(word: &str) -> Option<DType> {
    Some(match word {
        "FLOAT" => DType::F32,
        "DOUBLE" => DType::F64,
        "FLOAT16" => DType::F16,
        "INT64" => DType::I64,
        "INT32" => DType::I32,
        "INT16" => DType::I16,
        "INT8" => DType::I8,
        "UINT8" | "BYTE" => DType::U8,
        "BOOL" => DType::Bool,
        _ => return None,
    })
}
