//! What the actions need: a Mixer that asks for tokens and for a second person, two Racks that wait for admission, somebody of each role, and
//! a browser. And the actions that concern tokens.

use std::time::Duration;

use harness::credentials::admin_token;
use harness::{Api, TestRack, eventually, gear_files};

use super::super::*;
use crate::dlq::LetterPlant;

pub(super) const SOON: Duration = Duration::from_secs(60);

/// Who signs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageUser {
    Author,
    Operator,
    Admin,
    Reader,
}

/// See the module.
pub(super) struct ActionStage {
    pub(super) world: LetterPlant,
    pub(super) tab: BrowserTab,
    /// The keys that rack-a and rack-b print.
    pub(super) keys: [String; 2],
    /// The letters of the plant, once there are some.
    pub(super) letters: Vec<String>,
    /// Of authors, operators, admins and readers.
    tokens: [String; 4],
    /// The second operator.
    second: Api,
    _home: tempfile::TempDir,
}

/// A token with one role.
fn token(api: &Api, name: &str, role: &str) -> Result<String, Failure> {
    let made = api.post("/api/v1/tokens", &json!({ "name": name, "roles": [role] }))?;
    Ok(made.json["data"]["token"].as_str().ok_or(made.text.clone())?.to_owned())
}

/// Starts a Rack, and waits until it says by which key it asks for admission.
pub(super) fn pending(name: &str, mixer: &TestMixer) -> Result<(TestRack, String), Failure> {
    let mut rack = TestRack::new(name, &mixer.bus_url, "")?;
    rack.spawn()?;
    let waits = rack.process()?.line("pending ", SOON)?;
    let (_, key) = waits.split_once("key=").ok_or("it prints no key")?;
    Ok((rack, key.to_owned()))
}

impl ActionStage {
    pub(super) fn start() -> Result<Self, Failure> {
        let home = tempfile::tempdir()?;
        let (file, admin) = admin_token(home.path())?;
        let file = format!("{:?}", file.display().to_string());
        let keys = [
            ("api.auth", "\"tokens\""),
            ("api.tokens_file", file.as_str()),
            ("api.second_person", "[\"activate\"]"),
            ("enrollment.auto_adopt", "false"),
        ];
        let mut mixer = TestMixer::with(&keys, &[])?;
        mixer.api = Api::guarded(&mixer.api.base, &admin, None)?;
        let tokens = [
            token(&mixer.api, "anna", "author")?,
            token(&mixer.api, "otto", "operator")?,
            admin,
            token(&mixer.api, "rita", "reader")?,
        ];
        let second = Api::guarded(&mixer.api.base, &token(&mixer.api, "olga", "operator")?, None)?;
        let (a, key_a) = pending("rack-a", &mixer)?;
        let (b, key_b) = pending("rack-b", &mixer)?;
        let tab = open(&mixer, "fleet")?;
        let world = LetterPlant {
            mixer,
            a,
            b,
            files: gear_files()?,
            scenario: tempfile::tempdir()?,
        };
        Ok(Self {
            world,
            tab,
            keys: [key_a, key_b],
            letters: Vec::new(),
            tokens,
            second,
            _home: home,
        })
    }

    fn token_of(&self, user: PageUser) -> &str {
        let [author, operator, admin, reader] = &self.tokens;
        match user {
            PageUser::Author => author,
            PageUser::Operator => operator,
            PageUser::Admin => admin,
            PageUser::Reader => reader,
        }
    }

    pub(super) fn sign_in(&mut self, user: PageUser) -> Result<(), Failure> {
        let token = self.token_of(user).to_owned();
        sign_in(&mut self.tab, &token)
    }

    pub(super) fn api_of(&self, user: PageUser) -> Result<Api, Failure> {
        Api::guarded(&self.api().base, self.token_of(user), None)
    }

    /// The API as an administrator has it.
    pub(super) fn api(&self) -> &Api {
        &self.world.mixer.api
    }

    /// What the Mixer has at a path.
    pub(super) fn data(&self, path: &str) -> Result<Value, Failure> {
        Ok(self.api().get(path)?.json["data"].take())
    }

    pub(super) fn rack_id(&self, name: &str) -> Result<String, Failure> {
        let rack = self.data(&format!("/api/v1/racks/{name}"))?;
        Ok(rack["id"].as_str().ok_or("no such Rack")?.to_owned())
    }

    /// The beginning of a scenario's hash, which buttons have.
    pub(super) fn hash(&self, reference: &str) -> Result<String, Failure> {
        let scenario = self.data(&format!("/api/v1/scenarios/{reference}"))?;
        Ok(scenario["hash"].as_str().ok_or("no such scenario")?[..8].to_owned())
    }

    /// Goes to a view anew: nothing is left of what was said there before.
    pub(super) fn begin(&mut self, view: &str) -> Result<(), Failure> {
        visit(&mut self.tab, "overview")?;
        visit(&mut self.tab, view)
    }

    pub(super) fn press(&mut self, button: &str) -> Result<(), Failure> {
        self.tab.click_on("button", button)
    }

    /// Does what a dialog or a drawer asks, which everybody can use.
    pub(super) fn confirm(&mut self, button: &str) -> Result<(), Failure> {
        is_accessible(&mut self.tab, button)?;
        self.press(button)
    }

    /// Types what a dialog wants to have typed, and confirms.
    pub(super) fn confirm_typed(&mut self, typed: &str, button: &str) -> Result<(), Failure> {
        self.tab.fill_in(&format!("Type {typed} to confirm"), typed)?;
        self.confirm(button)
    }

    /// Waits until one change waits for a second person.
    pub(super) fn request(&self) -> Result<Value, Failure> {
        eventually("a change that waits", SOON, || {
            let requests = self.data("/api/v1/requests").ok()?;
            (requests.as_array()?.len() == 1).then(|| requests[0].clone())
        })
    }

    /// Has the second person ask for the same.
    pub(super) fn agree(&self, path: &str) -> Result<(), Failure> {
        self.request()?;
        let answer = self.second.post(path, &json!({}))?;
        assert_eq!(answer.status, 200, "{}", answer.text);
        Ok(())
    }

    /// Waits until the Mixer has something at a path.
    pub(super) fn becomes(&self, path: &str, field: &str, wanted: &Value) -> Result<(), Failure> {
        eventually(&format!("{path} with {field} {wanted}"), SOON, || {
            (self.data(path).ok()?.pointer(field)? == wanted).then_some(())
        })
    }
}

pub(super) fn make_token(stage: &mut ActionStage) -> Result<(), Failure> {
    stage.begin("security?view=tokens")?;
    stage.press("New token…")?;
    stage.tab.fill_in("Name", "tom")?;
    stage.tab.click_on("checkbox", "auditor reads the audit log")?;
    stage.confirm("Make the token")?;
    stage.tab.shows("The secret of tom: shown now and never again.")?;
    is_accessible(&mut stage.tab, "the secret")?;
    let secret = stage
        .tab
        .eval("document.querySelector('[aria-label=\"The secret of tom\"] pre').textContent")?;
    let secret = secret.as_str().ok_or("no secret")?.trim();
    let who = Api::guarded(&stage.api().base, secret, None)?.get("/api/v1/whoami")?;
    assert_eq!(who.json["data"]["roles"], json!(["reader", "auditor"]), "{}", who.text);
    stage.press("I have it: forget it")?;
    stage.tab.wait("!document.body.textContent.includes('plt_')")
}

pub(super) fn revoke_token(stage: &mut ActionStage) -> Result<(), Failure> {
    stage.begin("security?view=tokens&token=tom")?;
    stage.press("Revoke…")?;
    stage.confirm_typed("tom", "Revoke")?;
    said(&mut stage.tab, "tom is revoked")?;
    let names = stage.data("/api/v1/tokens")?;
    let names = names.as_array().into_iter().flatten();
    assert!(names.map(|token| &token["name"]).all(|name| name != "tom"));
    Ok(())
}
