//! The checkpoints that a plan reads.

use weightlift_core::{Catalog, Entry, Extent, KeyPath, Layout, Object, ObjectValue, Origin, Packing, Shape, SourceId};

/// One checkpoint that a plan reads: the first is edited, tensors of the others are called `WORD::NAME`.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// The word before `::`; empty for the first.
    pub word: &'a str,
    /// What it holds.
    pub catalog: &'a Catalog,
    /// How its optimizers number parameters, where a step asks for that ([`Plan::follows_optimizers`](crate::Plan)).
    pub orders: &'a [ParameterOrder],
}

impl<'a> Input<'a> {
    /// One whose optimizers nobody asks for.
    pub fn new(word: &'a str, catalog: &'a Catalog) -> Input<'a> {
        Input { word, catalog, orders: &[] }
    }
}

/// How an optimizer numbers the parameters that it keeps states for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParameterOrder {
    /// The joined path of what holds `state` and `param_groups`.
    pub optimizer: String,
    /// The parameters of each group, in order.
    pub groups: Vec<Vec<Parameter>>,
}

/// A parameter as an optimizer knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// Its number.
    pub number: u64,
    /// Its name, where the optimizer was told.
    pub name: Option<String>,
}

impl ParameterOrder {
    /// What the objects around tensors say: every list `param_groups` of dicts with a list `params` of numbers.
    pub fn find(objects: &[Object]) -> Vec<ParameterOrder> {
        let mut keys: Vec<String> = Vec::new();
        let mut found: Vec<ParameterOrder> = Vec::new();
        // The depth of the list of groups, and of the list of one of them.
        let (mut groups, mut list): (Option<usize>, Option<(usize, bool)>) = (None, None);
        for object in objects {
            keys.truncate(object.depth);
            keys.push(object.key.as_ref().map(ToString::to_string).unwrap_or_default());
            groups = groups.filter(|depth| *depth < object.depth);
            list = list.filter(|(depth, _)| *depth < object.depth);
            let own = keys.last().map_or("", String::as_str);
            if let (Some((_, names)), Some(group)) = (list, found.last_mut().and_then(|order| order.groups.last_mut()))
            {
                match (&object.value, names) {
                    (ObjectValue::Int(number), false) => {
                        group.push(Parameter { number: u64::try_from(*number).unwrap_or(u64::MAX), name: None });
                    }
                    (ObjectValue::Text(name), true) => {
                        let at = object.key.as_ref().and_then(|key| key.to_string().parse::<usize>().ok());
                        let parameter = at.and_then(|at| group.get_mut(at));
                        parameter.into_iter().for_each(|parameter| parameter.name = Some(name.clone()));
                    }
                    _ => {}
                }
                continue;
            }
            match (&object.value, groups) {
                (ObjectValue::Sequence(..), None) if own == "param_groups" => {
                    groups = Some(object.depth);
                    let optimizer = keys[1..object.depth.max(1)].join(".");
                    found.push(ParameterOrder { optimizer, groups: Vec::new() });
                }
                (ObjectValue::Keyed(..), Some(depth)) if object.depth == depth + 1 => {
                    found.last_mut().into_iter().for_each(|order| order.groups.push(Vec::new()));
                }
                (ObjectValue::Sequence(..), Some(depth)) if object.depth == depth + 2 => {
                    list = match own {
                        "params" => Some((object.depth, false)),
                        "param_names" => Some((object.depth, true)),
                        _ => None,
                    };
                }
                _ => {}
            }
        }
        found
    }

    /// The number of the parameter of this name: the key of a state dict.
    pub(crate) fn named(&self, path: &KeyPath) -> Option<u64> {
        let key = path.0.last()?.to_string();
        let mut all = self.groups.iter().flatten();
        all.find(|parameter| parameter.name.as_deref() == Some(&key)).map(|parameter| parameter.number)
    }
}

/// All of them, by position.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inputs<'a>(pub(crate) &'a [Input<'a>]);

impl<'a> Inputs<'a> {
    /// The catalog of the checkpoint that is edited.
    pub(crate) fn edited(&self) -> &'a Catalog {
        self.0[0].catalog
    }

    pub(crate) fn catalog(&self, input: u32) -> &'a Catalog {
        self.0[input as usize].catalog
    }

    pub(crate) fn entry(&self, origin: Origin) -> &'a Entry {
        self.catalog(origin.input).entry(origin.entry)
    }

    /// The position of the input that bears the word.
    pub(crate) fn position(&self, word: &str) -> Option<usize> {
        self.0.iter().position(|input| !word.is_empty() && input.word == word)
    }
}

/// Where the bytes of a tensor with one extent lie, so that equal places mean tied tensors.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) input: u32,
    pub(crate) source: SourceId,
    pub(crate) bytes: weightlift_core::ByteRange,
    layout: Layout,
    order: weightlift_core::ByteOrder,
    packing: Packing,
    shape: Shape,
}

impl Place {
    /// The place of an entry; `None` for one without bytes or in several pieces.
    pub(crate) fn of(input: u32, entry: &Entry) -> Option<Place> {
        let [Extent { source, bytes, layout, order, packing, .. }] = entry.extents().ok()? else { return None };
        let (layout, shape) = (layout.clone(), entry.shape.clone());
        let place = Place { input, source: *source, bytes: *bytes, layout, order: *order, packing: *packing, shape };
        (entry.bytes > 0).then_some(place)
    }
}
