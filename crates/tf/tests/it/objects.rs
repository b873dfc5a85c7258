//! Object graphs of real checkpoints.

use crate::support::{of_kinds, open, read, strings};
use std::collections::HashSet;
use weightlift_core::Limits;
use weightlift_testkit::{Fixture, fixture};
use weightlift_tf::graph::{self, ObjectGraph};

fn graph_of(fixture: &Fixture) -> Option<(Vec<u8>, ObjectGraph)> {
    let checkpoint = open(&fixture.path).unwrap();
    checkpoint.catalog().named(graph::KEY).next()?;
    let bytes = strings(&read(checkpoint.as_ref(), graph::KEY).unwrap(), 1).remove(0);
    let graph = ObjectGraph::parse(&bytes, &Limits::default()).unwrap();
    Some((bytes, graph))
}

#[test]
fn graphs_keep_their_bytes_and_name_every_tensor() {
    let mut count = 0;
    for fixture in of_kinds(&["tf-object-based", "tf-saved-model", "tf-bundle-v2"]) {
        if fixture.expect != "ok" {
            continue;
        }
        let Some((bytes, graph)) = graph_of(&fixture) else { continue };
        assert!(graph.to_bytes() == bytes, "{}", fixture.name);
        let named: HashSet<&str> = graph.object_names().into_iter().map(|(key, _)| key).collect();
        for tensor in fixture.tensors.iter().filter(|tensor| tensor.name != graph::KEY) {
            let table = ["-keys", "-values"].iter().find_map(|end| tensor.name.strip_suffix(end));
            assert!(named.contains(table.unwrap_or(&tensor.name)), "{}: {}", fixture.name, tensor.name);
        }
        count += 1;
    }
    assert!(count >= 6, "only {count} graphs");
}

/// Whether the values under these keys have these names.
fn check<'a>(names: Vec<(&str, String)>, expected: impl IntoIterator<Item = (&'a str, &'a str)>) {
    for (key, name) in expected {
        let key = format!("{key}/.ATTRIBUTES/VARIABLE_VALUE");
        let found = names.iter().find(|(other, _)| *other == key).map(|(_, name)| name.as_str());
        assert_eq!(found, Some(name), "{key}");
    }
}

#[test]
fn names_resolve_through_the_graph() {
    let graph = |name| graph_of(&fixture(name)).unwrap().1;
    let slots = graph("tf/object_slots/ckpt-1");
    check(
        slots.object_names(),
        [("model/kernel", "model/kernel"), ("model/kernel/.OPTIMIZER_SLOT/optimizer/m", "model/kernel/m")],
    );
    let both = [("model/kernel", "model/kernel"), ("step", "global_step")];
    check(slots.full_names(), both.into_iter().chain([("model/kernel/.OPTIMIZER_SLOT/optimizer/m", "Variable/Adam")]));
    let keras = graph("tf/keras_adam/ckpt-3");
    check(keras.object_names(), [("optimizer/_variables/10", "optimizer/_variables/10")]);
    check(keras.full_names(), [("optimizer/_trainable_variables/0", "sequential/first/kernel")]);
    let module = graph("tf/tf_module/ckpt-1");
    check(module.object_names(), [("table/a.Sb", "table/a/b"), ("table/c..d", "table/c.d"), ("tied", "tied")]);
    check(module.full_names(), [("tied", "layer_0"), ("extra/v", "extra/v")]);
}
