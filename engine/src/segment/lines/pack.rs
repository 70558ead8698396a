//! Lines into frames and back.

use std::io::{self, BufRead, BufReader, Read, Write};

use parquet::file::reader::ChunkReader;

use super::super::form::Form;
use super::super::source::FileAt;

/// Takes lines, writes a frame.
pub(super) enum Packer<W: Write> {
    Plain(W),
    Zstd(zstd::Encoder<'static, W>),
    Snappy(Box<snap::write::FrameEncoder<W>>),
}

impl<W: Write> Packer<W> {
    pub(super) fn new(form: Form, level: i32, to: W) -> io::Result<Self> {
        Ok(match form {
            Form::JsonZstd => {
                let mut encoder = zstd::Encoder::new(to, level)?;
                encoder.include_checksum(true)?;
                Self::Zstd(encoder)
            }
            Form::JsonSnappy => Self::Snappy(Box::new(snap::write::FrameEncoder::new(to))),
            Form::Json | Form::Parquet => Self::Plain(to),
        })
    }

    /// Ends the frame.
    pub(super) fn finish(self) -> io::Result<W> {
        match self {
            Self::Plain(to) => Ok(to),
            Self::Zstd(encoder) => encoder.finish(),
            Self::Snappy(encoder) => encoder.into_inner().map_err(snap::write::IntoInnerError::into_error),
        }
    }
}

impl<W: Write> Write for Packer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(to) => to.write(bytes),
            Self::Zstd(encoder) => encoder.write(bytes),
            Self::Snappy(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(to) => to.flush(),
            Self::Zstd(encoder) => encoder.flush(),
            Self::Snappy(encoder) => encoder.flush(),
        }
    }
}

/// The lines of a version of a file from a frame's beginning on, descriptions as blanks or not at all.
pub(super) fn unpack(form: Form, file: &FileAt, from: u64) -> io::Result<Box<dyn BufRead + Send>> {
    let packed = file.get_read(from).map_err(io::Error::other)?;
    let unpacked: Box<dyn Read + Send> = match form {
        Form::JsonZstd => Box::new(zstd::Decoder::with_buffer(packed)?),
        Form::JsonSnappy => Box::new(snap::read::FrameDecoder::new(packed)),
        Form::Json | Form::Parquet => return Ok(Box::new(packed)),
    };
    Ok(Box::new(BufReader::with_capacity(1 << 16, unpacked)))
}
