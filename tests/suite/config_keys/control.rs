//! What the Mixer tells its Racks: `[mixer]`, and how it narrows what they may.

use harness::{Failure, TestMixer, TestRack, eventually};

use super::{SOON, scenario};

#[test]
fn a_message_is_no_larger_than_rack_and_mixer_allow() -> Result<(), Failure> {
    let gears = |rack: &str| {
        format!(
            "  - {{ name: large-{rack}, type: generator, deploy: {rack}, config: {{ rate: 20, size: 4096 }} }}\n  \
             - {{ name: sink-{rack}, type: log_sink, deploy: {rack} }}\n"
        )
    };
    let text = format!(
        "meta: {{ name: large, version: '1' }}\nracks: [ {{ name: rack-a }}, {{ name: rack-b }} ]\ngears:\n{}{}wires:\n  \
         - {{ from: large-rack-a.out, to: sink-rack-a.in }}\n  - {{ from: large-rack-b.out, to: sink-rack-b.in }}\n",
        gears("rack-a"),
        gears("rack-b")
    );
    let (startup, _folder) = scenario(&text)?;
    let mixer = TestMixer::with(
        &[("mixer.startup_scenario", &startup), ("mixer.max_payload_size", "2048")],
        &[],
    )?;
    let mut plain = TestRack::with("rack-a", &mixer.bus_url, &[], &[])?;
    let mut small = TestRack::with("rack-b", &mixer.bus_url, &[("rack.max_payload_size", "1024")], &[])?;
    plain.start()?;
    small.start()?;
    for (rack, limit) in [(&plain, 2048), (&small, 1024)] {
        eventually("a refused message", SOON, || {
            rack.log()
                .contains(&format!("max_payload_size allows {limit}"))
                .then_some(())
        })
        .map_err(|error| format!("{error}: {}", rack.log()))?;
    }
    Ok(())
}
