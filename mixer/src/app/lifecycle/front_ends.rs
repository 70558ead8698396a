//! What clients reach: the API with OTLP's own ports, and PostgreSQL.

use std::sync::Arc;

use chassis::tls_server::ServerTls;
use model::Entropy;

use super::MixerComponents;
use crate::api::{self, ApiListeners, ApiParts};
use crate::app::listeners::{
    ListenAddresses, OtlpAddresses, ReservedSockets, api_address, listen, listen_otlp, postgres_address,
};
use crate::config::MixerConfig;
use crate::postgres::{self, PostgresServer};
use crate::start_error::StartError;

impl MixerComponents {
    /// Serves clients where it was reserved.
    pub(super) fn serve(
        &mut self,
        config: &MixerConfig,
        parts: ApiParts,
        sockets: ReservedSockets,
        (tls, entropy): (Option<Arc<ServerTls>>, Entropy),
    ) -> Result<ListenAddresses, StartError> {
        let (querier, authenticator) = (Arc::clone(&parts.querier), Arc::clone(&parts.authenticator));
        let (otlp_http, otlp_grpc) = sockets.otlp.map(|otlp| listen_otlp(otlp, config)).transpose()?.unzip();
        let listeners = ApiListeners {
            api: listen(sockets.api, config)?,
            otlp_http,
            otlp_grpc,
        };
        let server = api::serve(parts, listeners, (config.api.hosts(), tls.clone()))
            .map_err(|source| api_address(config, source))?;
        let api = server.addr();
        let otlp = match *server.others() {
            [http, grpc] => Some(OtlpAddresses { http, grpc }),
            _ => None,
        };
        self.api = Some(server);
        if let Some(socket) = sockets.postgres {
            let served = socket
                .listen(1024)
                .and_then(|listener| postgres::serve((querier, authenticator, tls), listener, entropy));
            self.postgres = Some(served.map_err(|source| postgres_address(config, source))?);
        }
        let postgres = self.postgres.as_ref().map(PostgresServer::addr);
        Ok(ListenAddresses { api, postgres, otlp })
    }
}
