//! What goes along with the rows of a tensor under `--with-related`: tied tensors, optimizer slots, output layers.

use super::optimizer::slot_of;
use crate::items::{Item, Items};
use crate::value::Value;
use std::collections::BTreeMap;
use weightlift_core::{Error, KeyPath, Result, Shape};

/// A tensor that goes along with another.
#[derive(Debug, Clone)]
pub(super) struct Related {
    pub(super) at: usize,
    pub(super) by: Relation,
}

impl Related {
    /// The tensor itself.
    pub(super) fn of(at: usize) -> Related {
        Related { at, by: Relation::Same }
    }
}

/// What it is to the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Relation {
    /// Itself, or tied to it.
    Same,
    /// What an optimizer keeps under this name for it, or for an output layer: the tensor at `of`.
    Slot { of: usize, slot: String },
    /// The output layer over the same vocabulary, or its bias.
    Output,
}

/// The states that one PyTorch optimizer keeps, by the number of the parameter: positions and names of its tensors.
type States = BTreeMap<u64, Vec<(usize, String)>>;

impl Items<'_> {
    /// The tensor at `at` and what belongs to it, all with as many rows.
    ///
    /// What an optimizer keeps and what does not fit is left as it is, with a note.
    pub(super) fn related(&mut self, at: usize) -> Result<Vec<Related>> {
        let mut notes = Vec::new();
        let found = self.related_to(at, &mut notes)?;
        self.notes.append(&mut notes);
        Ok(found)
    }

    fn related_to(&self, at: usize, notes: &mut Vec<String>) -> Result<Vec<Related>> {
        let own = &self.edited()[at];
        let rows = own.value.shape().dims().first();
        let identity = self.identity(&own.value);
        let tied = |other: &usize| *other == at || self.identity(&self.edited()[*other].value) == identity;
        let mut found: Vec<Related> = (0..self.edited().len()).filter(tied).map(Related::of).collect();
        let slots_of = |of: usize, notes: &mut Vec<String>| {
            let slot = |(at, slot): (usize, String)| Related { at, by: Relation::Slot { of, slot } };
            Ok::<_, Error>(self.slots(0, of, notes)?.into_iter().map(slot).collect::<Vec<_>>())
        };
        let mut more = slots_of(at, notes)?;
        if super::names::is_vocabulary(&own.name) {
            let is_output = |other: &usize| {
                let item = &self.edited()[*other];
                item.value.shape().dims().first() == rows && self.is_output_layer(&item.name)
            };
            for output in (0..self.edited().len()).filter(is_output) {
                more.push(Related { at: output, by: Relation::Output });
                more.extend(slots_of(output, notes)?);
            }
        }
        for related in more {
            let value = &self.edited()[related.at].value;
            let fits = value.shape().dims().first() == rows && value.element().is_ok();
            if let (Relation::Slot { of, .. }, false) = (&related.by, fits)
                && value.shape().rank() == self.edited()[*of].value.shape().rank()
                && value.shape().rank() > 0
            {
                let (name, shape) = (&self.edited()[related.at].name, value.shape());
                let (owner, own) = (&self.edited()[*of].name, self.edited()[*of].value.shape());
                notes.push(format!(
                    "--with-related: {name:?} of shape {shape} does not fit {owner:?} of {own} and stays as it is"
                ));
            }
            if fits && !found.iter().any(|known| known.at == related.at) {
                found.push(related);
            }
        }
        found.sort_by_key(|related| related.at);
        Ok(found)
    }

    /// What optimizers keep for the tensor at `at` of an input: positions, and what it is called.
    fn slots(&self, input: usize, at: usize, notes: &mut Vec<String>) -> Result<Vec<(usize, String)>> {
        let list = &self.lists[input];
        let own = &list[at];
        let slot = |(other, item): (usize, &Item)| Some((other, slot_of(&item.name, &own.name)?.to_owned()));
        let mut found: Vec<(usize, String)> = list.iter().enumerate().filter_map(slot).collect();
        for (optimizer, states) in states(list) {
            if !states.values().flatten().any(|(other, _)| *other == at)
                && let Some(number) = self.number(input, at, &optimizer, &states, notes)?
            {
                found.extend(states.get(&number).into_iter().flatten().cloned());
            }
        }
        // What is kept for the columns is as long as the rows only by chance.
        found.retain(|(_, slot)| !slot.ends_with("_col") && !slot.ends_with("_vc"));
        Ok(found)
    }

    /// Under which number a PyTorch optimizer keeps the state of a parameter; `None` where it keeps none.
    ///
    /// # Errors
    /// `Request` where that cannot be known, with the reason.
    fn number(
        &self,
        input: usize,
        at: usize,
        optimizer: &str,
        states: &States,
        notes: &mut Vec<String>,
    ) -> Result<Option<u64>> {
        let list = &self.lists[input];
        let own = &list[at];
        let shapes: BTreeMap<u64, Option<&Shape>> =
            states.iter().map(|(number, slots)| (*number, shape_of(list, slots))).collect();
        let parameters = self.parameters(input, at);
        let order = self.inputs.0[input].orders.iter().find(|order| order.optimizer == optimizer);
        if let Some(named) = order.and_then(|order| order.named(&own.path)) {
            return Ok(Some(named));
        }
        let alike: Vec<u64> =
            shapes.iter().filter(|(_, shape)| **shape == Some(own.value.shape())).map(|(number, _)| *number).collect();
        let same_shape = parameters.iter().filter(|&&other| list[other].value.shape() == own.value.shape()).count();
        match alike.as_slice() {
            [] if shapes.values().all(Option::is_some) => {
                let place = || parameters.iter().position(|&other| self.is_same(input, other, at));
                let number = match order.map(|order| order.groups.as_slice()) {
                    Some([group]) if group.len() == parameters.len() => place().map(|place| group[place].number),
                    _ => None,
                };
                match number.map(|number| (number, shapes.get(&number))) {
                    // What was never trained has no state.
                    Some((_, None)) => {}
                    Some((number, Some(shape))) => {
                        let shape = shape.map(Shape::to_string).unwrap_or_default();
                        let message = format!(
                            "--with-related: state {number} of {optimizer:?} belongs to it, but has shape {shape} and not {}",
                            own.value.shape()
                        );
                        let error = Error::request(message).in_tensor(&own.name);
                        return Err(error.help("--drop-optimizer before it drops the states"));
                    }
                    None => notes.push(format!(
                        "--with-related: no state of {optimizer:?} has the shape of {:?}, {}; none goes along",
                        own.name,
                        own.value.shape()
                    )),
                }
                return Ok(None);
            }
            // One state and one parameter of this shape belong together, in whatever order the others are.
            [only] if same_shape == 1 => return Ok(Some(*only)),
            _ => {}
        }
        let why = match order.map(|order| order.groups.as_slice()) {
            None => "the file does not say how its parameters are numbered".to_owned(),
            Some([group]) if group.len() != parameters.len() => {
                format!("it has {} parameters, and the model {}", group.len(), parameters.len())
            }
            Some([group]) => {
                let fits = |(parameter, &at): (&super::super::inputs::Parameter, &usize)| {
                    let shape = shapes.get(&parameter.number).copied().flatten();
                    shape.is_none_or(|shape| shape == list[at].value.shape())
                };
                match group.iter().zip(&parameters).position(|pair| !fits(pair)) {
                    None => {
                        let place = parameters.iter().position(|&other| self.is_same(input, other, at));
                        return Ok(place.map(|place| group[place].number));
                    }
                    Some(place) => {
                        let name = &list[parameters[place]].name;
                        format!("the shape of state {} is not that of {name:?}", group[place].number)
                    }
                }
            }
            Some(groups) => format!("its {} groups number the parameters in another order", groups.len()),
        };
        let count = alike.len();
        let message = format!(
            "--with-related: which state of {optimizer:?} belongs to it is not known: {count} have its shape, and {why}"
        );
        let error = Error::request(message).in_tensor(&own.name);
        Err(error.help("--drop-optimizer before it drops the states; without --with-related they stay as they are"))
    }

    fn is_same(&self, input: usize, a: usize, b: usize) -> bool {
        let list = &self.lists[input];
        a == b || self.identity(&list[a].value) == self.identity(&list[b].value)
    }

    /// The parameters of the state dict that holds the tensor, in order: no buffers, and tied ones once.
    fn parameters(&self, input: usize, at: usize) -> Vec<usize> {
        let container = |path: &KeyPath| path.0[..path.0.len().saturating_sub(1)].to_vec();
        let own = container(&self.lists[input][at].path);
        self.parameters_among(input, |item| container(&item.path) == own)
    }

    /// The parameters among some tensors of an input.
    pub(super) fn parameters_among(&self, input: usize, among: impl Fn(&Item) -> bool) -> Vec<usize> {
        const BUFFERS: &[&str] = &["running_mean", "running_var", "num_batches_tracked", "masked_bias", "inv_freq"];
        let list = &self.lists[input];
        let is_buffer = |item: &Item| {
            let last = item.name.rsplit(['.', '/']).next().unwrap_or_default();
            !item.value.dtype().is_float() || BUFFERS.contains(&last)
        };
        let mut seen = std::collections::HashSet::new();
        let mut found = Vec::new();
        for (other, item) in list.iter().enumerate() {
            if among(item) && !is_buffer(item) && seen.insert(self.identity(&item.value)) {
                found.push(other);
            }
        }
        found
    }

    /// The tensor that stands to one related to the target as the source stands to the target.
    pub(super) fn counterpart(&mut self, from: &str, to: &str, related: &Related) -> Result<Value> {
        let item = &self.edited()[related.at];
        let name = item.name.clone();
        if from == to {
            return Ok(item.value.clone());
        }
        let (input, at) = self.locate(from, "--copy-rows")?;
        self.use_input(input);
        let nothing = || {
            Error::request(format!("belongs to {to:?}, but {from:?} has nothing like it"))
                .in_tensor(name.clone())
                .help("leave out --with-related and name each copy")
        };
        if let Relation::Slot { of, slot } = &related.by {
            let (target, _) = self.find_whole(to, "--copy-rows")?;
            let owner = &self.edited()[*of];
            // What belongs to an output layer has its counterpart at the layer of the same name.
            let owner = match self.identity(&owner.value) == self.identity(&self.edited()[target].value) {
                true => Some(at),
                false => self.lists[input].iter().position(|item| input > 0 && item.name == owner.name),
            };
            let slots = owner.map(|owner| self.slots(input, owner, &mut Vec::new())).transpose()?.unwrap_or_default();
            return match slots.into_iter().find(|(_, theirs)| theirs == slot) {
                Some((at, _)) => Ok(self.lists[input][at].value.clone()),
                None => Err(nothing()),
            };
        }
        match from.split_once("::").filter(|_| input > 0) {
            Some((word, _)) => self.operand(&format!("{word}::{name}"), "--with-related"),
            None => Err(nothing()),
        }
    }

    /// Whether a tensor is the output layer over the vocabulary or its bias, rather than those of a classifier, which
    /// have weights of their own beside the bias.
    fn is_output_layer(&self, name: &str) -> bool {
        let own_weights = name.strip_suffix("output_bias").map(|stem| format!("{stem}output_weights"));
        let classifier = own_weights.is_some_and(|weights| self.names().any(|name| name == weights));
        super::names::is_output_layer(name) && !classifier
    }
}

/// The states of every PyTorch optimizer, by the joined path of what holds them: `optimizer` for
/// `optimizer.state.0.exp_avg`.
fn states(list: &[Item]) -> BTreeMap<String, States> {
    let mut found: BTreeMap<String, States> = BTreeMap::new();
    for (at, item) in list.iter().enumerate() {
        let Some((rest, slot)) = item.name.rsplit_once('.') else { continue };
        let Some((rest, number)) = rest.rsplit_once('.') else { continue };
        let (holder, word) = rest.rsplit_once('.').unwrap_or(("", rest));
        if let ("state", Ok(number)) = (word, number.parse()) {
            let states = found.entry(holder.to_owned()).or_default();
            states.entry(number).or_default().push((at, slot.to_owned()));
        }
    }
    found
}

/// The shape of the parameter that a state is of: that of everything in it that is no single number; `None` where
/// several differ or there is none.
fn shape_of<'a>(list: &'a [Item], slots: &[(usize, String)]) -> Option<&'a Shape> {
    let mut shapes = slots.iter().map(|(at, _)| list[*at].value.shape()).filter(|shape| shape.rank() > 0);
    let first = shapes.next()?;
    shapes.all(|shape| shape == first).then_some(first)
}
