//! The connection to a Modbus device: one request at a time, each within its time.
//!
//! # Invariants
//!
//! - A request that was cut off, or whose answer is late or not its own, ends the connection: no later request gets its answer.
//! - A connection that failed is opened again after a pause that doubles from [`FIRST_PAUSE`] to [`LONGEST_PAUSE`], and starts over
//!   with an answer.
//! - An answer has what was asked for, no more and no less.

use std::io::ErrorKind;
use std::time::Duration;

use model::HumanDuration;
use tokio::time::Instant;
use tokio_modbus::client::{Client, Context as OpenLink, tcp};
use tokio_modbus::{Error, ExceptionCode, ProtocolError, Request, Response, Slave};

use super::super::connect::connect;

/// The pause before a connection is opened again.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum RequestFailure {
    /// The device refuses it.
    #[error("the device answers: {}", .0.to_string().to_lowercase())]
    Refused(ExceptionCode),
    /// The device is not there, is silent, or speaks something else.
    #[error("{0}")]
    Lost(String),
}

impl RequestFailure {
    /// Whether the same request may be answered later.
    pub(super) const fn is_temporary(&self) -> bool {
        match self {
            Self::Lost(_) => true,
            Self::Refused(code) => matches!(
                code,
                ExceptionCode::Acknowledge
                    | ExceptionCode::ServerDeviceBusy
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

/// A device, connected or not.
pub(super) struct DeviceLink {
    address: String,
    unit: u8,
    timeout: Duration,
    open: Option<OpenLink>,
    pause: Duration,
    /// When it may be connected to again.
    not_before: Option<Instant>,
}

impl DeviceLink {
    pub(super) const fn new(address: String, unit: u8, timeout: Duration) -> Self {
        Self {
            address,
            unit,
            timeout,
            open: None,
            pause: FIRST_PAUSE,
            not_before: None,
        }
    }

    /// Sends a request and waits for its answer; connects before, if that is necessary and as soon as it may.
    pub(super) async fn ask(&mut self, request: &Request<'_>) -> Result<AnswerData, RequestFailure> {
        // Cut off from here on, the connection is closed.
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.connect().await?,
        };
        let exchange = tokio::time::timeout(self.timeout, open.call(request.clone())).await;
        let answered = match exchange {
            Ok(Ok(answered)) => answered,
            Ok(Err(error)) => return Err(self.lost(&said(&error))),
            Err(_) => {
                let timeout = HumanDuration::from(self.timeout);
                return Err(self.lost(&format!("no answer within {timeout}")));
            }
        };
        let answer = match answered {
            Ok(response) => data(request, response).ok_or_else(|| self.lost("its answer is not what was asked for"))?,
            Err(code) => {
                self.keep(open);
                return Err(RequestFailure::Refused(code));
            }
        };
        self.keep(open);
        Ok(answer)
    }

    async fn connect(&mut self) -> Result<OpenLink, RequestFailure> {
        if let Some(at) = self.not_before {
            tokio::time::sleep_until(at).await;
        }
        match connect(&self.address, self.timeout).await {
            Ok(stream) => Ok(tcp::attach_slave(stream, Slave(self.unit))),
            Err(error) => Err(self.lost(&format!("cannot connect: {error}"))),
        }
    }

    /// The connection is good.
    fn keep(&mut self, open: OpenLink) {
        self.open = Some(open);
        self.pause = FIRST_PAUSE;
        self.not_before = None;
    }

    fn lost(&mut self, why: &str) -> RequestFailure {
        self.not_before = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        RequestFailure::Lost(format!("{}: {why}", self.address))
    }
}

fn said(error: &Error) -> String {
    match error {
        Error::Protocol(ProtocolError::HeaderMismatch { .. }) => "its answer is that to another request".to_owned(),
        Error::Protocol(ProtocolError::FunctionCodeMismatch { .. }) => {
            "its answer is not what was asked for".to_owned()
        }
        Error::Transport(error) => match error.kind() {
            ErrorKind::InvalidData | ErrorKind::InvalidInput | ErrorKind::UnexpectedEof => {
                format!("its answer is no Modbus: {error}")
            }
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => error.to_string(),
            // The library tells the end of the stream as the last error of the system, whatever that was about.
            _ => "it closed the connection".to_owned(),
        },
    }
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
