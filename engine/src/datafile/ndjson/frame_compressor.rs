//! Compresses lines into frames, and decompresses them.

use std::io::{self, BufRead, BufReader, Read, Write};

use parquet::file::reader::ChunkReader;

use super::super::file_format::FileFormat;
use super::super::file_prefix::FilePrefix;

/// Takes lines, writes a frame.
pub(super) enum FrameCompressor<W: Write> {
    Plain(W),
    Zstd(zstd::Encoder<'static, W>),
    Snappy(Box<snap::write::FrameEncoder<W>>),
}

impl<W: Write> FrameCompressor<W> {
    pub(super) fn new(form: FileFormat, level: i32, to: W) -> io::Result<Self> {
        Ok(match form {
            FileFormat::JsonZstd => {
                let mut encoder = zstd::Encoder::new(to, level)?;
                encoder.include_checksum(true)?;
                Self::Zstd(encoder)
            }
            FileFormat::JsonSnappy => Self::Snappy(Box::new(snap::write::FrameEncoder::new(to))),
            FileFormat::Json | FileFormat::Parquet => Self::Plain(to),
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

impl<W: Write> Write for FrameCompressor<W> {
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
pub(super) fn unpack(form: FileFormat, file: &FilePrefix, from: u64) -> io::Result<Box<dyn BufRead + Send>> {
    let packed = file.get_read(from).map_err(io::Error::other)?;
    let unpacked: Box<dyn Read + Send> = match form {
        FileFormat::JsonZstd => Box::new(zstd::Decoder::with_buffer(packed)?),
        FileFormat::JsonSnappy => Box::new(snap::read::FrameDecoder::new(packed)),
        FileFormat::Json | FileFormat::Parquet => return Ok(Box::new(packed)),
    };
    Ok(Box::new(BufReader::with_capacity(1 << 16, unpacked)))
}
