//! The link to a device that breaks the rules.

#![allow(clippy::unwrap_used, reason = "tests")]

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// What a device answers, made of the transaction that it was asked in; none of a silent one.
type ScriptedAnswer = Option<Box<dyn Fn([u8; 2]) -> Vec<u8> + Send>>;

/// A link to a device that gives these answers, each on a connection of its own.
async fn link_to(answers: Vec<ScriptedAnswer>, timeout: Duration) -> DeviceLink {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let mut silent = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 12];
            stream.read_exact(&mut request).await.unwrap();
            match answer {
                // Who hangs up before it has all of it does so on purpose.
                Some(answer) => drop(stream.write_all(&answer([request[0], request[1]])).await),
                None => silent.push(stream),
            }
        }
    });
    let mut link = DeviceLink::new(address, 1, timeout);
    link.set_policy(RackPolicy::for_tests());
    link
}

/// A frame of a transaction.
pub(in crate::gears::modbus) fn frame(transaction: [u8; 2], unit: u8, pdu: &[u8]) -> Vec<u8> {
    let length = u16::try_from(pdu.len() + 1).unwrap().to_be_bytes();
    [&transaction[..], &[0, 0], &length, &[unit], pdu].concat()
}

/// A link that may not connect for an hour.
pub(in crate::gears::modbus) fn resting_link() -> DeviceLink {
    let mut link = DeviceLink::new("127.0.0.1:1".to_owned(), 1, Duration::from_secs(20));
    link.not_before = Some(Instant::now() + Duration::from_secs(3600));
    link
}

const GOOD: [u8; 6] = [3, 4, 0, 7, 0, 8];

#[tokio::test]
async fn a_device_that_breaks_the_rules_loses_its_connection_and_the_next_one_is_good() {
    let patient = Duration::from_secs(20);
    let cases: Vec<(ScriptedAnswer, Duration, &str)> = vec![
        (
            Some(Box::new(|_| b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec())),
            patient,
            "closed the connection",
        ),
        (Some(Box::new(|_| vec![0xff; 70_000])), patient, "not Modbus"),
        (
            Some(Box::new(|[high, low]| frame([high, low ^ 1], 1, &GOOD))),
            patient,
            "that to another request",
        ),
        (
            Some(Box::new(|id| frame(id, 2, &GOOD))),
            patient,
            "that to another request",
        ),
        (
            Some(Box::new(|id| frame(id, 1, &[4, 4, 0, 7, 0, 8]))),
            patient,
            "not what was asked for",
        ),
        (
            Some(Box::new(|id| frame(id, 1, &[3, 2, 0, 7]))),
            patient,
            "not what was asked for",
        ),
        (
            Some(Box::new(|id| frame(id, 1, &[3, 3, 0, 7, 0]))),
            patient,
            "not Modbus",
        ),
        (Some(Box::new(|id| frame(id, 1, &[]))), patient, "not Modbus"),
        (
            Some(Box::new(|id| frame(id, 1, &GOOD)[..9].to_vec())),
            patient,
            "127.0.0.1",
        ),
        (Some(Box::new(|_| Vec::new())), patient, "closed the connection"),
        (None, Duration::from_millis(100), "no answer within 100ms"),
    ];
    for (answer, timeout, says) in cases {
        let good: ScriptedAnswer = Some(Box::new(|id| frame(id, 1, &GOOD)));
        let mut link = link_to(vec![answer, good], timeout).await;
        let request = Request::ReadHoldingRegisters(0, 2);
        let failure = link.ask(&request).await.unwrap_err();
        // What is well formed is an answer, to be taken as it is.
        let is_answer = failure == RequestFailure::Unexpected;
        assert!(
            failure.is_temporary() != is_answer && failure.to_string().contains(says),
            "{says}: {failure}"
        );
        if timeout == patient {
            assert_eq!(
                link.ask(&request).await,
                Ok(AnswerData::Registers(vec![7, 8])),
                "after: {says}"
            );
        }
    }
}

#[tokio::test]
async fn a_connection_that_the_device_closes_after_each_answer_costs_no_request() {
    let answers = (0..4).map(|_| Some(Box::new(|id| frame(id, 1, &GOOD)) as Box<dyn Fn([u8; 2]) -> Vec<u8> + Send>));
    let mut link = link_to(answers.collect(), Duration::from_secs(20)).await;
    for _ in 0..4 {
        let answer = link.ask(&Request::ReadHoldingRegisters(0, 2)).await;
        assert_eq!(answer, Ok(AnswerData::Registers(vec![7, 8])));
    }
}

#[tokio::test]
async fn a_write_that_the_device_acknowledges_is_taken_and_a_reading_is_not() {
    let acknowledge = |function: u8| {
        Some(Box::new(move |id| frame(id, 1, &[function | 0x80, 5])) as Box<dyn Fn([u8; 2]) -> Vec<u8> + Send>)
    };
    let mut link = link_to(vec![acknowledge(6), acknowledge(3)], Duration::from_secs(20)).await;
    assert_eq!(
        link.ask(&Request::WriteSingleRegister(0, 2)).await,
        Ok(AnswerData::Confirmed)
    );
    let read = link.ask(&Request::ReadHoldingRegisters(0, 2)).await;
    assert_eq!(read, Err(RequestFailure::Refused(ExceptionCode::Acknowledge)));
}

#[tokio::test]
async fn random_answers_are_failures_or_what_was_asked_for() {
    let mut random = SmallRng::seed_from_u64(20_261_122);
    for _ in 0..300 {
        let mut pdu: Vec<u8> = (0..random.random_range(0..20)).map(|_| random.random()).collect();
        if let Some(function) = pdu.first_mut().filter(|_| random.random_bool(0.9)) {
            *function = [3, 0x83, 1, 16][random.random_range(0..4)];
        }
        let with_header = random.random_bool(0.8);
        let answer = move |id| if with_header { frame(id, 1, &pdu) } else { pdu.clone() };
        let mut link = link_to(vec![Some(Box::new(answer))], Duration::from_secs(20)).await;
        if let Ok(answer) = link.ask(&Request::ReadHoldingRegisters(0, 2)).await {
            assert!(matches!(answer, AnswerData::Registers(registers) if registers.len() == 2));
        }
    }
}
