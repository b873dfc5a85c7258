//! `weightlift devices`: who can do the work, and how fast, as far as that was measured.

use super::args::DevicesArgs;
use super::show::{self, Align};
use serde_json::{Value, json};
use std::io::Write;
use weightlift::rates::Measured;
use weightlift_kernels::cast::Room;

/// An adapter as it is listed.
struct Listed {
    /// As `--device` takes it.
    device: String,
    name: String,
    backend: String,
    kind: &'static str,
    software: bool,
    driver: String,
    identity: String,
    max_buffer: u64,
    max_binding: u64,
    max_groups: u32,
    rates: Vec<(String, Measured)>,
}

/// Lists the devices. That there are no others than the processor is no error.
pub(crate) fn run(args: &DevicesArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let threads = weightlift::Options::default().threads;
    let listed = listed();
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &to_json(threads, listed.as_deref()))?;
        return Ok(writeln!(out)?);
    }
    print(threads, listed.as_deref(), out)
}

/// None where the program was built without devices.
#[cfg(feature = "gpu")]
fn listed() -> Option<Vec<Listed>> {
    let rates = weightlift::rates::Rates::load();
    let one = |(at, adapter): (usize, weightlift_gpu::Adapter)| {
        let identity = adapter.identity();
        Listed {
            device: format!("gpu:{at}"),
            name: adapter.name().to_owned(),
            backend: adapter.backend(),
            kind: adapter.kind(),
            software: adapter.is_software(),
            driver: adapter.driver(),
            max_buffer: adapter.max_buffer(),
            max_binding: adapter.max_binding(),
            max_groups: adapter.max_groups(),
            rates: rates.of(&identity).map(|(name, measured)| (name.to_owned(), measured)).collect(),
            identity,
        }
    };
    Some(weightlift_gpu::adapters().into_iter().enumerate().map(one).collect())
}

#[cfg(not(feature = "gpu"))]
fn listed() -> Option<Vec<Listed>> {
    None
}

fn print(threads: usize, listed: Option<&[Listed]>, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut cpu = [const { String::new() }; 8];
    (cpu[0], cpu[1]) = ("cpu".to_owned(), format!("{}, kernels: {}", show::count(threads, "thread"), kernels()));
    let mut rows = vec![cpu];
    rows.extend(listed.unwrap_or_default().iter().map(row));
    let header = ["DEVICE", "NAME", "BACKEND", "KIND", "DRIVER", "BUFFER", "BINDING", "GROUPS"];
    let mut align = [Align::Left; 8];
    align[5..].fill(Align::Right);
    show::table(out, header, align, &rows)?;
    match listed {
        None => writeln!(out, "\nthis program was built without compute devices (its feature gpu is off)")?,
        Some([]) => writeln!(out, "\nno compute device: no Vulkan, Metal or DX12 adapter was found")?,
        Some(listed) => {
            listed.iter().try_for_each(|one| print_rates(one, out))?;
            if listed.iter().all(|one| one.software) {
                writeln!(out, "\nsoftware adapters compute on the processor; they are never chosen by themselves")?;
            }
        }
    }
    Ok(())
}

fn row(one: &Listed) -> [String; 8] {
    let groups = one.max_groups.to_string();
    let [buffer, binding] = [one.max_buffer, one.max_binding].map(show::bytes);
    let texts = [one.device.as_str(), &one.name, &one.backend, one.kind, &one.driver].map(show::plain);
    let [device, name, backend, kind, driver] = texts;
    [device, name, backend, kind, driver, buffer, binding, groups]
}

fn print_rates(one: &Listed, out: &mut dyn Write) -> anyhow::Result<()> {
    let device = &one.device;
    if one.rates.is_empty() {
        return Ok(writeln!(out, "\n{device}: not measured; weightlift bench --device {device} does that")?);
    }
    writeln!(out, "\n{device}, bytes of source a second, memory to memory:")?;
    let rate = |rate: f64| format!("{}/s", show::bytes(rate as u64));
    let row = |(name, measured): &(String, Measured)| {
        [show::plain(name), rate(measured.gpu), rate(measured.cpu), rate(measured.both)]
    };
    let rows: Vec<_> = one.rates.iter().map(row).collect();
    let header = ["", &device.to_uppercase(), "CPU", "BOTH"];
    Ok(show::table(out, header, [Align::Left, Align::Right, Align::Right, Align::Right], &rows)?)
}

fn kernels() -> String {
    format!("{:?}", Room::best()).to_lowercase()
}

fn to_json(threads: usize, listed: Option<&[Listed]>) -> Value {
    let rate = |(name, measured): &(String, Measured)| json!({"name": name, "gpu": measured.gpu, "cpu": measured.cpu, "both": measured.both});
    let one = |one: &Listed| {
        json!({
            "device": one.device,
            "name": one.name,
            "backend": one.backend,
            "kind": one.kind,
            "driver": one.driver,
            "identity": one.identity,
            "max_buffer": one.max_buffer,
            "max_binding": one.max_binding,
            "max_groups": one.max_groups,
            "rates": one.rates.iter().map(rate).collect::<Vec<_>>(),
        })
    };
    json!({
        "schema": "weightlift.devices/1",
        "cpu": {"threads": threads, "kernels": kernels()},
        "built_in": listed.is_some(),
        "adapters": listed.unwrap_or_default().iter().map(one).collect::<Vec<_>>(),
    })
}
