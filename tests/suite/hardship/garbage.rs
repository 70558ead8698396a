//! Ten thousand messages that are none, among good ones.

use harness::Random;
use harness::bus::Outgoing;
use model::message::Message;
use model::{Attributes, FluxId, MessageId, Timestamp, telemetry_codec};

use super::*;
use crate::first_light::mixer_with;
use crate::kill9::setting;
use crate::lanes;

/// The subject of the wire that good messages take.
const WIRE: &str = "flux.msg.rack-a.tail.out";
const LINES: u64 = 900;
/// Garbage that is sent at once.
const AT_ONCE: u64 = 100;

const LIAR: &[(&str, &str)] = &[
    (telemetry_codec::ENTITY_ID, "../../../etc/passwd"),
    (telemetry_codec::ENTITY_NAME, "../../evil"),
    (telemetry_codec::BOOT_EPOCH, "-1"),
    (telemetry_codec::SEQUENCE, "many"),
    (telemetry_codec::SETTLED, "99999999999999999999"),
];
const ODD: &[(&str, &str)] = &[
    (telemetry_codec::PLACE, "not a place/0"),
    (telemetry_codec::CONTENT_TYPE, "text/plain"),
];

/// A message as a gear sends it.
fn good() -> Result<Vec<u8>, Failure> {
    let ts = Timestamp::from(std::time::SystemTime::now());
    let message = Message {
        id: MessageId::at(ts, [1; 10]),
        ts,
        raw: b"raw".to_vec(),
        data: Value::Null,
        hops: 1,
        meta: Attributes::new(),
        parent: None,
        flux_id: FluxId::at(ts, [1; 10]),
        sampled: true,
        span_id: "b7ad6b7169203331".parse()?,
        trace_id: "0af7651916cd43dd8448eb211c80319c".parse()?,
        trace_state: None,
    };
    Ok(message.to_cbor()?)
}

/// One of ten kinds of garbage; the first six go the way of the good ones.
fn garbage_of(kind: u64, random: &mut Random) -> Result<Outgoing, Failure> {
    let noise: Vec<u8> = (0..random.below(300)).map(|_| random.below(256) as u8).collect();
    let cut = {
        let mut whole = good()?;
        whole.truncate(usize::try_from(random.below(whole.len() as u64))?);
        whole
    };
    let (subject, headers, body) = match kind {
        0 => (WIRE, &[][..], [vec![0xff], noise].concat()),
        1 => (WIRE, &[][..], cut),
        2 => (WIRE, &[][..], vec![0xa1, 0x61, b'x', 0x01]),
        3 => (WIRE, ODD, Vec::new()),
        4 => (WIRE, &[][..], vec![0x81; 5_000]),
        5 => (WIRE, ODD, noise),
        6 => ("flux.msg.nobody.nothing.out", &[][..], noise),
        7 => ("flux.msg.a.b", &[][..], good()?),
        8 => ("flux.msg.nobody.nothing.out", LIAR, good()?),
        _ => ("flux.gear.nobody.nothing", &[][..], noise),
    };
    let subject = subject.to_owned();
    Ok(Outgoing { subject, headers, body })
}

fn lines(mixer: &TestMixer, count: u64) -> Result<(), Failure> {
    eventually(&format!("{count} good messages"), SOON, || {
        (lanes::arrived(mixer).ok()?.len() as u64 >= count).then_some(())
    })
    .map_err(|error| format!("{error}: {:?}", lanes::arrived(mixer).map(|rows| rows.len())).into())
}

#[test]
fn each_of_ten_thousand_garbage_messages_is_a_letter_and_good_ones_arrive_once_and_in_order() -> Result<(), Failure> {
    let garbage = setting("PLATFORM_TEST_GARBAGE", 10_000);
    let logs = harness::gear_files()?;
    let file = logs.path().join("app.log");
    let (mixer, _scenario) = mixer_with(&lanes::scenario(&file))?;
    let mut a = TestRack::new("rack-a", &mixer.bus_url, "")?;
    let mut b = TestRack::new("rack-b", &mixer.bus_url, "")?;
    a.start()?;
    b.start()?;
    lanes::write(&file, 0..1)?;
    lines(&mixer, 1)?;
    let bus = mixer.bus()?;
    let mut random = Random::for_test("each_of_ten_thousand_garbage_messages");
    // One without headers too, which ends the pull that it comes in (ADR 33): each costs the wire the consumer's wait.
    bus.publish(WIRE, Vec::new())?;
    let (mut on_wire, mut next) = (1, 1);
    for sent in (0..garbage).step_by(usize::try_from(AT_ONCE)?) {
        let these = (sent..sent + AT_ONCE).map(|number| garbage_of(number % 10, &mut random));
        let these: Vec<Outgoing> = these.collect::<Result<_, _>>()?;
        on_wire += these.iter().filter(|message| message.subject == WIRE).count() as u64;
        bus.publish_all(these)?;
        // Good ones all along.
        let wanted = 1 + (LINES - 1) * (sent + AT_ONCE) / garbage;
        lanes::write(&file, next..wanted)?;
        next = wanted;
    }
    assert_eq!(next, LINES);
    lines(&mixer, LINES)?;
    assert!(
        lanes::arrived(&mixer)?.into_iter().eq(0..LINES),
        "in order and once: {:?}",
        lanes::arrived(&mixer)
    );
    eventually("the good ones in the archive", SOON, || {
        (lanes::archived(&mixer, "tail")? == (LINES, LINES)).then_some(())
    })
    .map_err(|error| format!("{error}: {:?}", lanes::archived(&mixer, "tail")))?;
    // One at its place on the bus, and one of the gear that the wire brought it to.
    let of_gear = "subject = 'flux.gear.rack-b.pass'";
    let at_place = "subject <> 'flux.gear.rack-b.pass'";
    for (condition, count) in [(at_place, garbage + 1), (of_gear, on_wire)] {
        eventually(&format!("{count} letters where {condition}"), SOON, || {
            (letters(&mixer, condition)? == count).then_some(())
        })
        .map_err(|error| format!("{error}, there are {:?}\n{}", letters(&mixer, condition), b.log()))?;
    }
    // An operator sees them, each with its reason.
    let listed = mixer.api.rows("/api/v1/dlq?gear=pass&limit=10")?;
    assert_eq!(listed.len(), 10);
    for letter in listed {
        assert!(
            letter["reason"]
                .as_str()
                .is_some_and(|reason| reason.contains("not a message")),
            "{letter:?}"
        );
    }
    for rack in ["rack-a", "rack-b"] {
        assert_eq!(shown(&mixer, rack).ok_or("no Rack")?["state"], "active");
    }
    Ok(())
}
