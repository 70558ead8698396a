//! The connection to a Modbus device: one request at a time, each within its time.
//!
//! # Invariants
//!
//! - A request that was cut off, or whose answer is late or not its own, ends the connection: no later request gets its answer.
//! - A connection that failed is opened again after a pause ([`DeviceBackoff`]), which starts over with an answer.
//! - A device may close a connection that was idle: where one that has answered before ends without an answer, it is opened again at once
//!   and the request is sent once more. The device may get a write twice then.
//! - An answer has what was asked for, no more and no less.

use std::io::ErrorKind;
use std::time::Duration;

use model::HumanDuration;
use tokio::time::Instant;
use tokio_modbus::client::{Client, Context as OpenLink, tcp};
use tokio_modbus::{Error, ExceptionCode, ProtocolError, Request, Response, Slave};

use super::super::tcp_connect::connect;
use crate::policy::RackPolicy;

/// The shortest pause before something is tried again.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum RequestFailure {
    /// The device refuses it.
    #[error("the device answers: {}", .0.to_string().to_lowercase())]
    Refused(ExceptionCode),
    /// The device answers something else, such as another value than was written.
    #[error("its answer is not what was asked for")]
    Unexpected,
    /// The device answers other requests, and this one time and again not.
    #[error("{0}, though the device answers other requests")]
    Ignored(String),
    /// The device got it and is silent, hangs up, or speaks something else.
    #[error("{0}")]
    Unanswered(String),
    /// The device is not there.
    #[error("{0}")]
    Lost(String),
}

impl RequestFailure {
    /// Whether the same request may be answered later.
    pub(super) const fn is_temporary(&self) -> bool {
        match self {
            Self::Unanswered(_) | Self::Lost(_) => true,
            Self::Unexpected | Self::Ignored(_) => false,
            Self::Refused(code) => matches!(
                code,
                ExceptionCode::ServerDeviceBusy
                    | ExceptionCode::GatewayPathUnavailable
                    | ExceptionCode::GatewayTargetDevice
            ),
        }
    }
}

/// What an answer has.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AnswerData {
    Bits(Vec<bool>),
    Registers(Vec<u16>),
    /// What was written is confirmed.
    Confirmed,
}

/// Exponential back-off: pauses that double from [`FIRST_PAUSE`] to [`LONGEST_PAUSE`].
#[derive(Debug, Clone, Copy)]
pub(super) struct DeviceBackoff(Duration);

impl DeviceBackoff {
    pub(super) const fn new() -> Self {
        Self(FIRST_PAUSE)
    }

    /// The next pause.
    pub(super) fn take(&mut self) -> Duration {
        let next = (self.0 * 2).min(LONGEST_PAUSE);
        std::mem::replace(&mut self.0, next)
    }
}

/// Why a connection gave no answer.
enum ExchangeFailure {
    /// It has ended, before any of the answer came.
    Ended,
    /// In words.
    Other(String),
}

/// A device, connected or not.
pub(super) struct DeviceLink {
    /// None before the gear begins.
    policy: Option<RackPolicy>,
    address: String,
    unit: u8,
    timeout: Duration,
    open: Option<OpenLink>,
    backoff: DeviceBackoff,
    /// When it may be connected to again.
    not_before: Option<Instant>,
    answers: u64,
}

impl DeviceLink {
    pub(super) const fn new(address: String, unit: u8, timeout: Duration) -> Self {
        Self {
            policy: None,
            address,
            unit,
            timeout,
            open: None,
            backoff: DeviceBackoff::new(),
            not_before: None,
            answers: 0,
        }
    }

    /// From now on it may connect where the policy allows it.
    pub(super) fn set_policy(&mut self, policy: RackPolicy) {
        self.policy = Some(policy);
    }

    /// How many requests the device has answered, or refused for good.
    pub(super) const fn answers(&self) -> u64 {
        self.answers
    }

    /// Sends a request and waits for its answer; connects before, if that is necessary and as soon as it may.
    pub(super) async fn ask(&mut self, request: &Request<'_>) -> Result<AnswerData, RequestFailure> {
        // Cut off from here on, the connection is closed.
        if let Some(open) = self.open.take() {
            match self.exchange(open, request).await {
                Err(ExchangeFailure::Ended) => {}
                done => return self.judge(done),
            }
        }
        let open = self.connect().await?;
        let done = self.exchange(open, request).await;
        self.judge(done)
    }

    /// One request on one connection, which is kept if that is good.
    async fn exchange(
        &mut self,
        mut open: OpenLink,
        request: &Request<'_>,
    ) -> Result<Result<AnswerData, RequestFailure>, ExchangeFailure> {
        let exchange = tokio::time::timeout(self.timeout, open.call(request.clone())).await;
        let answer = match exchange {
            Ok(Ok(Ok(response))) => data(request, response).ok_or(RequestFailure::Unexpected),
            // It has taken the request, and needs time for it.
            Ok(Ok(Err(ExceptionCode::Acknowledge))) if is_write(request) => Ok(AnswerData::Confirmed),
            Ok(Ok(Err(code))) => Err(RequestFailure::Refused(code)),
            Ok(Err(error)) => return Err(failure(&error)),
            Err(_) => {
                let timeout = HumanDuration::from(self.timeout);
                return Err(ExchangeFailure::Other(format!("no answer within {timeout}")));
            }
        };
        self.open = Some(open);
        self.backoff = DeviceBackoff::new();
        self.not_before = None;
        self.answers += u64::from(answer.as_ref().err().is_none_or(|failure| !failure.is_temporary()));
        Ok(answer)
    }

    fn judge(
        &mut self,
        done: Result<Result<AnswerData, RequestFailure>, ExchangeFailure>,
    ) -> Result<AnswerData, RequestFailure> {
        match done {
            Ok(answer) => answer,
            Err(ExchangeFailure::Ended) => Err(RequestFailure::Unanswered(self.lost("it closed the connection"))),
            Err(ExchangeFailure::Other(why)) => Err(RequestFailure::Unanswered(self.lost(&why))),
        }
    }

    async fn connect(&mut self) -> Result<OpenLink, RequestFailure> {
        if let Some(at) = self.not_before {
            tokio::time::sleep_until(at).await;
        }
        let Some(policy) = &self.policy else {
            return Err(RequestFailure::Lost(self.lost("the gear has not begun")));
        };
        match connect(policy, &self.address, self.timeout).await {
            Ok(stream) => Ok(tcp::attach_slave(stream, Slave(self.unit))),
            Err(error) => Err(RequestFailure::Lost(self.lost(&format!("cannot connect: {error}")))),
        }
    }

    /// The connection is gone: the next one comes after a pause. What is told of that.
    fn lost(&mut self, why: &str) -> String {
        self.not_before = Some(Instant::now() + self.backoff.take());
        format!("{}: {why}", self.address)
    }
}

fn failure(error: &Error) -> ExchangeFailure {
    let why = match error {
        Error::Protocol(ProtocolError::HeaderMismatch { .. }) => "its answer is that to another request".to_owned(),
        Error::Protocol(_) => "its answer is not what was asked for".to_owned(),
        // The library tells the end of the stream as the last error of the system, whatever that was about.
        Error::Transport(error) if error.raw_os_error().is_some() => return ExchangeFailure::Ended,
        Error::Transport(error) => match error.kind() {
            ErrorKind::InvalidData | ErrorKind::InvalidInput | ErrorKind::UnexpectedEof => {
                format!("its answer is not Modbus: {error}")
            }
            _ => "it closed the connection in the middle of its answer".to_owned(),
        },
    };
    ExchangeFailure::Other(why)
}

const fn is_write(request: &Request<'_>) -> bool {
    matches!(
        request,
        Request::WriteSingleCoil(..)
            | Request::WriteMultipleCoils(..)
            | Request::WriteSingleRegister(..)
            | Request::WriteMultipleRegisters(..)
    )
}

/// What the answer to a request has, if it is one.
fn data(request: &Request<'_>, response: Response) -> Option<AnswerData> {
    match (request, response) {
        (Request::ReadCoils(_, count), Response::ReadCoils(bits))
        | (Request::ReadDiscreteInputs(_, count), Response::ReadDiscreteInputs(bits)) => {
            // They come in whole bytes.
            (bits.len() == usize::from(*count).next_multiple_of(8)).then_some(AnswerData::Bits(bits))
        }
        (Request::ReadHoldingRegisters(_, count), Response::ReadHoldingRegisters(registers))
        | (Request::ReadInputRegisters(_, count), Response::ReadInputRegisters(registers)) => {
            (registers.len() == usize::from(*count)).then_some(AnswerData::Registers(registers))
        }
        (Request::WriteSingleCoil(at, bit), Response::WriteSingleCoil(done_at, done)) => {
            ((*at, *bit) == (done_at, done)).then_some(AnswerData::Confirmed)
        }
        (Request::WriteSingleRegister(at, register), Response::WriteSingleRegister(done_at, done)) => {
            ((*at, *register) == (done_at, done)).then_some(AnswerData::Confirmed)
        }
        (Request::WriteMultipleCoils(at, bits), Response::WriteMultipleCoils(done_at, count)) => {
            (*at == done_at && bits.len() == usize::from(count)).then_some(AnswerData::Confirmed)
        }
        (Request::WriteMultipleRegisters(at, registers), Response::WriteMultipleRegisters(done_at, count)) => {
            (*at == done_at && registers.len() == usize::from(count)).then_some(AnswerData::Confirmed)
        }
        _ => None,
    }
}

#[cfg(test)]
pub(super) mod tests;
