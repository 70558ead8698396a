//! Fuzz targets of MQTT: what a broker sends, in both versions.

use futures::FutureExt;
use model::fuzz::FuzzTarget;
use tokio::io::AsyncReadExt;

use super::packet_reader::PacketReader;
use super::{BrokerPacket, ConnectionEnd, MqttVersion, PacketProperties, PublishPacket, QosLevel, publish};

/// The most bytes of a packet that is kept.
const MAX_PACKET: usize = 2_000;

/// The targets.
pub(in crate::gears) fn fuzz_targets() -> Vec<FuzzTarget> {
    let old: [&[u8]; 4] = [&[0x20, 2, 1, 0], &[0x90, 3, 0, 1, 1], &[0x40, 2, 0, 7], &[0xd0, 0]];
    let new: [&[u8]; 5] = [
        &[0x20, 6, 0, 0, 3, 0x21, 0, 10],
        &[0x90, 4, 0, 1, 0, 1],
        &[0x40, 2, 0, 7],
        &[0x50, 10, 0, 7, 0x97, 6, 0x1f, 0, 3, b'n', b'o', b'w'],
        &[0xe0, 1, 0x8b],
    ];
    vec![
        stream("framing.mqtt_3", MqttVersion::V3, &old.concat()),
        stream("framing.mqtt_5", MqttVersion::V5, &new.concat()),
    ]
}

fn stream(name: &'static str, version: MqttVersion, packets: &[u8]) -> FuzzTarget {
    let message = PublishPacket {
        topic: "plant/7/temp".to_owned(),
        qos: QosLevel::AtLeastOnce,
        retain: true,
        dup: false,
        id: 9,
        properties: PacketProperties {
            content_type: Some("text/plain".to_owned()),
            user: vec![("a".to_owned(), "b".to_owned())],
            ..PacketProperties::default()
        },
        payload: b"21.5".to_vec(),
    };
    let mut published = Vec::new();
    publish(version, &message, &mut published);
    let large = PublishPacket {
        payload: vec![b'x'; MAX_PACKET],
        ..message
    };
    let mut too_large = Vec::new();
    publish(version, &large, &mut too_large);
    let samples = vec![[packets, &published].concat(), too_large];
    FuzzTarget::new(name, samples, move |bytes| {
        let (whole, is_good) = read(version, (bytes, &[]));
        let (in_pieces, _) = read(version, bytes.split_at(bytes.len() / 2));
        assert_eq!(in_pieces, whole, "its pieces make a difference");
        is_good && !whole.is_empty()
    })
}

/// The packets of a stream, and whether all of it was read.
fn read(version: MqttVersion, (one, two): (&[u8], &[u8])) -> (Vec<BrokerPacket>, bool) {
    let mut reader = PacketReader::new(AsyncReadExt::chain(one, two), version, MAX_PACKET);
    let mut packets = Vec::new();
    loop {
        match reader.next().now_or_never() {
            Some(Ok(mut more)) => packets.append(&mut more),
            Some(Err(ConnectionEnd::Broken(why))) => return (packets, why.contains("closed")),
            Some(Err(_)) | None => return (packets, false),
        }
    }
}
