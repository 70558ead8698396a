//! A resolver for HTTP clients that gives only addresses a policy allows.

use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use hyper_util::client::legacy::connect::dns::Name;

use super::RackPolicy;

/// Resolves the host of one address, whose port it knows.
#[derive(Debug, Clone)]
pub(crate) struct CheckedResolver {
    pub(crate) policy: RackPolicy,
    pub(crate) port: u16,
}

impl tower::Service<Name> for CheckedResolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let Self { policy, port } = self.clone();
        async move { Ok(policy.resolve(name.as_str(), port).await?.into_iter()) }.boxed()
    }
}
