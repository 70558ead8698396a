//! The bus as a client of it sees it: foreign telemetry goes in, streams and consumers are looked at.

use async_nats::jetstream::{self, Context, consumer, stream};
use async_nats::{Client, ConnectOptions, HeaderMap};
use futures::TryStreamExt as _;
use model::telemetry_codec;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::Failure;

/// A message that a foreign publisher sends.
#[derive(Debug)]
pub struct Outgoing {
    /// Where it goes.
    pub subject: String,
    /// Names and values.
    pub headers: &'static [(&'static str, &'static str)],
    /// As it is.
    pub body: Vec<u8>,
}

/// A batch of records with a producer's key, as a Rack sends it.
#[derive(Debug, Clone)]
pub struct KeyedBatch {
    /// Whose it is.
    pub entity: model::EntityId,
    /// The producer's run.
    pub boot_epoch: u64,
    /// Its number in the run.
    pub seq: u64,
    /// The records as a JSON list.
    pub records: Value,
}

/// A client of one bus; every call waits for its answer.
#[derive(Debug)]
pub struct TestBus {
    runtime: Runtime,
    js: Context,
    _client: Client,
}

impl TestBus {
    /// Connects to a bus that asks nobody who they are, or as somebody whom a Mixer's bus does not know; streams are those of `domain`.
    ///
    /// # Errors
    /// If the bus refuses.
    pub fn connect(url: &str, domain: &str) -> Result<Self, Failure> {
        Self::open(url, ConnectOptions::new(), domain)
    }

    pub(crate) fn open(url: &str, options: ConnectOptions, domain: &str) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let client = runtime.block_on(options.connect(url))?;
        // It starts a task.
        let _entered = runtime.enter();
        let js = jetstream::with_domain(client.clone(), domain);
        drop(_entered);
        Ok(Self {
            runtime,
            js,
            _client: client,
        })
    }

    /// Publishes records as one JSON batch of a foreign publisher, acknowledged by the bus.
    ///
    /// # Errors
    /// If the bus does not acknowledge.
    pub fn send(&self, table: &str, publisher: &str, records: &Value) -> Result<(), Failure> {
        let mut headers = HeaderMap::new();
        headers.insert("Content-Type", "application/json");
        let subject = format!("flux.telemetry.{table}.{publisher}");
        let body = records.to_string().into();
        self.runtime
            .block_on(async { self.js.publish_with_headers(subject, headers, body).await?.await })?;
        Ok(())
    }

    /// Publishes one message as it is, acknowledged by the bus.
    ///
    /// # Errors
    /// If the bus does not acknowledge.
    pub fn publish(&self, subject: &str, body: Vec<u8>) -> Result<(), Failure> {
        let (subject, body) = (subject.to_owned(), body.into());
        self.runtime
            .block_on(async { self.js.publish(subject, body).await?.await })?;
        Ok(())
    }

    /// Publishes messages one behind the other, with headers; returns when the bus has acknowledged all of them.
    ///
    /// # Errors
    /// If the bus does not acknowledge one.
    pub fn publish_all(&self, messages: Vec<Outgoing>) -> Result<(), Failure> {
        self.runtime.block_on(async {
            let mut acknowledgements = Vec::with_capacity(messages.len());
            for message in messages {
                let mut headers = HeaderMap::new();
                for (name, value) in message.headers {
                    headers.insert(*name, *value);
                }
                let sent = self
                    .js
                    .publish_with_headers(message.subject, headers, message.body.into());
                acknowledgements.push(sent.await?);
            }
            for acknowledgement in acknowledgements {
                acknowledgement.await?;
            }
            Ok(())
        })
    }

    /// Publishes batches of a producer one behind the other; returns when the bus has acknowledged all of them.
    ///
    /// # Errors
    /// If the bus does not acknowledge one.
    pub fn publish_keyed(&self, table: &str, publisher: &str, batches: &[KeyedBatch]) -> Result<(), Failure> {
        self.runtime.block_on(async {
            let mut acknowledgements = Vec::with_capacity(batches.len());
            for batch in batches {
                let mut headers = HeaderMap::new();
                headers.insert("Content-Type", "application/json");
                headers.insert(telemetry_codec::ENTITY_ID, batch.entity.to_string());
                headers.insert(telemetry_codec::ENTITY_NAME, publisher);
                headers.insert(telemetry_codec::BOOT_EPOCH, batch.boot_epoch.to_string());
                headers.insert(telemetry_codec::SEQUENCE, batch.seq.to_string());
                let subject = format!("flux.telemetry.{table}.{publisher}");
                let sent = self
                    .js
                    .publish_with_headers(subject, headers, batch.records.to_string().into());
                acknowledgements.push(sent.await?);
            }
            for acknowledgement in acknowledgements {
                acknowledgement.await?;
            }
            Ok(())
        })
    }

    /// How a stream is configured.
    ///
    /// # Errors
    /// If there is none.
    pub fn stream(&self, name: &str) -> Result<stream::Config, Failure> {
        let stream = self.runtime.block_on(self.js.get_stream(name))?;
        Ok(stream.cached_info().config.clone())
    }

    /// How many messages a stream has.
    ///
    /// # Errors
    /// If there is none.
    pub fn messages(&self, name: &str) -> Result<u64, Failure> {
        let stream = self.runtime.block_on(self.js.get_stream(name))?;
        Ok(stream.cached_info().state.messages)
    }

    /// Gives a stream another limit of bytes, and returns the one that it had.
    ///
    /// # Errors
    /// If there is none.
    pub fn limit_stream(&self, name: &str, bytes: i64) -> Result<i64, Failure> {
        let config = self.stream(name)?;
        let limited = stream::Config {
            max_bytes: bytes,
            ..config.clone()
        };
        self.runtime.block_on(self.js.update_stream(limited))?;
        Ok(config.max_bytes)
    }

    /// How many consumers a stream has.
    ///
    /// # Errors
    /// If there is no such stream.
    pub fn consumers(&self, stream: &str) -> Result<usize, Failure> {
        let stream = self.runtime.block_on(self.js.get_stream(stream))?;
        Ok(stream.cached_info().state.consumer_count)
    }

    /// Whether a consumer has nothing more to deliver, and everything that it delivered is acknowledged.
    ///
    /// # Errors
    /// If there is none.
    pub fn is_drained(&self, stream: &str, name: &str) -> Result<bool, Failure> {
        let found = async {
            let stream = self.js.get_stream(stream).await?;
            Ok::<_, Failure>(stream.consumer_info(name).await?)
        };
        let found = self.runtime.block_on(found)?;
        Ok(found.num_pending == 0 && found.num_ack_pending == 0)
    }

    /// Deletes the consumers of a stream whose names begin so.
    ///
    /// # Errors
    /// If there is no such stream.
    pub fn delete_consumers(&self, stream: &str, prefix: &str) -> Result<(), Failure> {
        let deleted = async {
            let stream = self.js.get_stream(stream).await?;
            let names: Vec<String> = stream.consumer_names().try_collect().await?;
            for name in names.iter().filter(|name| name.starts_with(prefix)) {
                stream.delete_consumer(name).await?;
            }
            Ok::<_, Failure>(())
        };
        self.runtime.block_on(deleted)
    }

    /// How a durable consumer is configured.
    ///
    /// # Errors
    /// If there is none.
    pub fn consumer(&self, stream: &str, name: &str) -> Result<consumer::Config, Failure> {
        let found = async {
            let stream = self.js.get_stream(stream).await?;
            let found: consumer::PullConsumer = stream.get_consumer(name).await?;
            Ok::<_, Failure>(found.cached_info().config.clone())
        };
        self.runtime.block_on(found)
    }
}
