//! Live tails and taps have no end of their own: they end when their token is revoked or expires.

use async_nats::{Client, RequestErrorKind};
use futures::StreamExt as _;
use http_body_util::BodyExt as _;
use model::subject::{self, RackCommand};
use model::tap::{TapAnswer, TapBatch, TapLease, TapRequest, TapSample};
use model::{FluxId, MessageId, SignedPayload, Token, signed, telemetry_codec};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::entity_rows::store_rows;
use super::scopes::put_rack;
use super::*;

pub(super) const TAILS: [&str; 2] = ["/api/v1/telemetry/logs/tail", "/api/v1/messages/tail"];
const TAP: &str = "/api/v1/racks/press-1/tap?port=numbers.out";
/// Whose rows are stored while all streams are open, and whose when one has ended.
const EARLY: &str = "press-1";
const LATE: &str = "press-2";
/// The longest wait for what must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// An answer that goes on, and what has come of it.
pub(super) struct OpenStream {
    body: Body,
    pub(super) text: String,
}

impl OpenStream {
    pub(super) async fn open(api: &GuardedApi, path: &str, token: &ApiToken) -> Self {
        let asked = request(&Method::GET, path).header(header::AUTHORIZATION, credential(token));
        let answer = api.respond(asked, Body::empty()).await;
        assert_eq!(answer.status(), StatusCode::OK, "{path}");
        assert_eq!(answer.headers()[header::CONTENT_TYPE], "text/event-stream", "{path}");
        Self {
            body: answer.into_body(),
            text: String::new(),
        }
    }

    /// Takes the next piece; false at the proper end.
    async fn take_piece(&mut self) -> bool {
        let Some(frame) = self.body.frame().await else {
            return false;
        };
        let piece = frame.unwrap().into_data().unwrap_or_default();
        self.text.push_str(std::str::from_utf8(&piece).unwrap());
        true
    }

    pub(super) async fn read_until(&mut self, wanted: &str) {
        let reading = async {
            while !self.text.contains(wanted) {
                assert!(self.take_piece().await, "the stream ended before {wanted}");
            }
        };
        let read = tokio::time::timeout(PATIENCE, reading).await;
        read.unwrap_or_else(|_| panic!("never came: {wanted}"));
    }

    async fn read_to_end(&mut self) {
        let reading = async { while self.take_piece().await {} };
        let read = tokio::time::timeout(PATIENCE, reading).await;
        read.unwrap_or_else(|_| panic!("the stream never ended"));
    }
}

/// Both tails, open.
async fn open_tails(api: &GuardedApi, token: &ApiToken) -> Vec<OpenStream> {
    let mut tails = Vec::new();
    for path in TAILS {
        tails.push(OpenStream::open(api, path, token).await);
    }
    tails
}

async fn revoke(api: &GuardedApi, name: &str, admin: &ApiToken) {
    let asked = request(&Method::POST, &format!("/api/v1/tokens/{name}/revoke"));
    let asked = asked.header(header::AUTHORIZATION, credential(admin));
    let (status, answer) = api.fetch(asked, Body::empty()).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tails_end_when_their_token_is_revoked_and_those_of_another_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = whole_mixer(folder.path()).await;
    let api = GuardedApi::new(&mixer, folder.path());
    let admin = api.token("admin", &[AccessRole::Admin], AccessScope::default()).await;
    let leaving = api
        .token("leaving", &[AccessRole::Reader], AccessScope::default())
        .await;
    let staying = api
        .token("staying", &[AccessRole::Reader], AccessScope::default())
        .await;
    let (mut ended, mut open) = (open_tails(&api, &leaving).await, open_tails(&api, &staying).await);
    let now = chassis::system_clock().now();
    store_rows(&mixer, EARLY, now).await;
    for tail in ended.iter_mut().chain(&mut open) {
        tail.read_until(EARLY).await;
    }
    revoke(&api, "leaving", &admin).await;
    store_rows(&mixer, LATE, now).await;
    for tail in &mut open {
        tail.read_until(LATE).await;
    }
    for tail in &mut ended {
        tail.read_to_end().await;
        assert!(
            !tail.text.contains(LATE),
            "a row of after the revocation: {}",
            tail.text
        );
    }
    for path in TAILS {
        let again = api.bearer(&Method::GET, path, &leaving).await;
        assert_eq!(again, (StatusCode::UNAUTHORIZED, "unauthorized".to_owned()), "{path}");
    }
    drop((ended, open));
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tails_end_when_their_token_expires_and_those_of_one_with_more_time_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = whole_mixer(folder.path()).await;
    let api = GuardedApi::new(&mixer, folder.path());
    // It looks every few seconds which tokens have expired, by the clock that is moved here.
    let stop = CancellationToken::new();
    let looking = tokio::spawn(Arc::clone(&api.tokens).run(stop.clone()));
    let leaving = api.expiring("leaving", Duration::from_secs(60)).await;
    let staying = api.expiring("staying", Duration::from_secs(61)).await;
    let (mut ended, mut open) = (open_tails(&api, &leaving).await, open_tails(&api, &staying).await);
    let now = chassis::system_clock().now();
    store_rows(&mixer, EARLY, now).await;
    for tail in ended.iter_mut().chain(&mut open) {
        tail.read_until(EARLY).await;
    }
    api.clock.forward(Duration::from_secs(60));
    for tail in &mut ended {
        tail.read_to_end().await;
    }
    store_rows(&mixer, LATE, now).await;
    for tail in &mut open {
        tail.read_until(LATE).await;
    }
    drop((ended, open));
    stop.cancel();
    looking.await.unwrap();
    mixer.close().await;
}

/// A Rack as taps see it: it agrees to all that it is asked.
struct TappedRack {
    id: EntityId,
    client: Client,
    leases: mpsc::UnboundedReceiver<TapLease>,
    _answering: AbortOnDropHandle<()>,
}

impl TappedRack {
    async fn connect(mixer: &Mixer, name: &str) -> Self {
        let id = put_rack(mixer, name, "lyon").await.entity_id;
        let client = mixer.control().bus.another_connection().await;
        let asked = client.subscribe(subject::rack(&id, RackCommand::Tap)).await;
        let mut asked = asked.unwrap();
        // A flush only writes; an answer means that the server has read the subscription.
        let nobody = client.request("flux.nobody", "".into()).await.unwrap_err();
        assert_eq!(nobody.kind(), RequestErrorKind::NoResponders);
        let (told, leases) = mpsc::unbounded_channel();
        let answers = client.clone();
        let answering = tokio::spawn(async move {
            while let Some(command) = asked.next().await {
                let lease = SignedPayload::from_bytes(&command.payload).unwrap().peek::<TapLease>();
                let headers = command.headers.as_ref();
                let named = headers.and_then(|headers| headers.get(telemetry_codec::ANSWER_TO));
                let to = named.map(|to| to.as_str().into()).or(command.reply).unwrap();
                let done = signed::encode(&TapAnswer::Done).unwrap();
                answers.publish(to, done.into()).await.unwrap();
                // Nobody listens when the test is over.
                told.send(lease.unwrap()).ok();
            }
        });
        Self {
            id,
            client,
            leases,
            _answering: AbortOnDropHandle::new(answering),
        }
    }

    /// The session of the next lease that asks for this.
    async fn session(&mut self, request: TapRequest) -> Token {
        loop {
            let lease = tokio::time::timeout(PATIENCE, self.leases.recv()).await;
            let lease = lease
                .unwrap_or_else(|_| panic!("no lease asks for {request:?}"))
                .unwrap();
            if lease.request == request {
                return lease.session;
            }
        }
    }

    /// Shows a message, the one of this number, to a session.
    async fn show(&self, session: &Token, number: u64) {
        let ts = chassis::system_clock().now();
        let sample = TapSample {
            number,
            ts,
            id: MessageId::at(ts, [1; 10]),
            flux_id: FluxId::at(ts, [1; 10]),
            meta: Attributes::new(),
            is_meta_cut: false,
            is_value: true,
            body: json!(format!("message {number}")).to_string().into_bytes(),
            size: None,
            is_cut: false,
        };
        let batch = TapBatch {
            samples: vec![sample],
            passed: number,
        };
        let bytes = signed::encode(&batch).unwrap();
        let shown = self.client.publish(subject::tap(&self.id, session), bytes.into());
        shown.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tap_ends_when_its_token_is_revoked_and_that_of_another_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = whole_mixer(folder.path()).await;
    let api = GuardedApi::new(&mixer, folder.path());
    let admin = api.token("admin", &[AccessRole::Admin], AccessScope::default()).await;
    let leaving = api
        .token("leaving", &[AccessRole::Reader], AccessScope::default())
        .await;
    let staying = api
        .token("staying", &[AccessRole::Reader], AccessScope::default())
        .await;
    let mut rack = TappedRack::connect(&mixer, "press-1").await;
    let mut ended = OpenStream::open(&api, TAP, &leaving).await;
    let ended_session = rack.session(TapRequest::Begin).await;
    let mut open = OpenStream::open(&api, TAP, &staying).await;
    let open_session = rack.session(TapRequest::Begin).await;
    for session in [&ended_session, &open_session] {
        rack.show(session, 1).await;
    }
    for tap in [&mut ended, &mut open] {
        tap.read_until("message 1").await;
    }
    revoke(&api, "leaving", &admin).await;
    for session in [&ended_session, &open_session] {
        rack.show(session, 2).await;
    }
    open.read_until("message 2").await;
    ended.read_to_end().await;
    assert!(!ended.text.contains("message 2"), "{}", ended.text);
    let again = api.bearer(&Method::GET, TAP, &leaving).await;
    assert_eq!(again, (StatusCode::UNAUTHORIZED, "unauthorized".to_owned()));
    drop(ended);
    assert_eq!(rack.session(TapRequest::End).await, ended_session, "the Rack is told");
    drop(open);
    assert_eq!(rack.session(TapRequest::End).await, open_session);
    mixer.close().await;
}
