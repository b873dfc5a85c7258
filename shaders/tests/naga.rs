//! Every shader is valid for adapters without any extra, uses no floats, and can be written for Metal and DirectX.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests say what they expect by panicking")]
#![allow(clippy::print_stderr, reason = "a test that cannot run says so")]

use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{AddressSpace, Module, Scalar, ScalarKind, TypeInner};
use weightlift_shaders::Shader;

fn validated(shader: Shader) -> (Module, ModuleInfo) {
    let text = shader.wgsl();
    let said = |error: String| format!("{shader:?}: {error}\n{text}");
    let module = naga::front::wgsl::parse_str(&text).map_err(|error| said(error.emit_to_string(&text))).unwrap();
    let mut validator = Validator::new(ValidationFlags::all(), Capabilities::empty());
    let info = validator.validate(&module).map_err(|error| said(error.emit_to_string(&text))).unwrap();
    (module, info)
}

#[test]
fn every_shader_is_valid_with_no_capability_at_all() {
    assert!(Shader::all().count() > 1400);
    Shader::all().for_each(|shader| drop(validated(shader)));
}

/// WGSL floats may be rounded, flushed and assumed to be no NaN, so there are none.
#[test]
fn no_shader_has_a_float() {
    for shader in Shader::all() {
        let (module, _) = validated(shader);
        for (_, ty) in module.types.iter() {
            let scalar = match ty.inner {
                TypeInner::Scalar(scalar) | TypeInner::Vector { scalar, .. } | TypeInner::Atomic(scalar) => scalar,
                _ => Scalar::U32,
            };
            assert!(!matches!(scalar.kind, ScalarKind::Float | ScalarKind::AbstractFloat), "{shader:?}: {ty:?}");
        }
        let text = shader.wgsl();
        for word in ["f32(", "f16", "pack2x16float", "bitcast", "enable"] {
            assert!(!text.contains(word), "{shader:?} says {word}");
        }
    }
}

/// Metal may use a slot of its own, and the least that adapters offer is four to eight.
#[test]
fn no_shader_binds_more_than_four_storage_buffers() {
    for shader in Shader::all() {
        let (module, _) = validated(shader);
        let storage = |space| matches!(space, AddressSpace::Storage { .. });
        let bound = module.global_variables.iter().filter(|(_, global)| storage(global.space)).count();
        assert!((1..=4).contains(&bound), "{shader:?}: {bound}");
    }
}

#[test]
fn every_shader_can_be_written_for_metal_and_directx() {
    for shader in Shader::all() {
        let (module, info) = validated(shader);
        let pipeline = naga::back::msl::PipelineOptions::default();
        let options = naga::back::msl::Options { fake_missing_bindings: true, ..Default::default() };
        let written = naga::back::msl::write_string(&module, &info, &options, &pipeline);
        let (text, _) = written.map_err(|error| format!("{shader:?} for Metal: {error}")).unwrap();
        assert!(text.contains("kernel void"), "{shader:?}");
        let mut text = String::new();
        let options = naga::back::hlsl::Options::default();
        let pipeline = naga::back::hlsl::PipelineOptions::default();
        let written = naga::back::hlsl::Writer::new(&mut text, &options, &pipeline).write(&module, &info, None);
        written.map_err(|error| format!("{shader:?} for DirectX: {error}")).unwrap();
        assert!(text.contains("numthreads(256, 1, 1)"), "{shader:?}");
    }
}
