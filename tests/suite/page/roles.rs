//! Who may see what: tokens, roles, and tokens that are for some tables only.

use harness::Api;
use harness::credentials::admin_token;

use super::*;

/// Roles, and the titles of the pages that they are offered.
fn offered() -> [(&'static str, Vec<&'static str>); 4] {
    let all = PAGES.map(|(_, title)| title);
    [
        ("reader", all[..all.len() - 1].to_vec()),
        ("auditor", vec!["Overview", "Fleet", "Storage", "Security"]),
        ("monitor", vec!["Overview"]),
        ("admin", all.to_vec()),
    ]
}

#[test]
fn a_token_is_asked_for_and_what_its_role_may_not_see_is_not_offered() -> Result<(), Failure> {
    let home = tempfile::tempdir()?;
    let (file, admin) = admin_token(home.path())?;
    let file = format!("{:?}", file.display().to_string());
    let mixer = TestMixer::with(&[("api.auth", "\"tokens\""), ("api.tokens_file", &file)], &[])?;
    let api = Api::guarded(&mixer.api.base, &admin, None)?;
    let token = |body: Value| -> Result<String, Failure> {
        let made = api.post("/api/v1/tokens", &body)?;
        Ok(made.json["data"]["token"].as_str().ok_or(made.text.clone())?.to_owned())
    };
    let mut tab = open(&mixer, "logs")?;
    tab.fill_in("Token", "plt_wrong")?;
    tab.press("Enter")?;
    tab.wait("document.querySelector('[role=alert]') !== null")?;
    for (role, titles) in offered() {
        sign_in(
            &mut tab,
            &token(json!({ "name": format!("{role}-1"), "roles": [role] }))?,
        )?;
        let shown = tab.eval("[...document.querySelectorAll('header nav a')].map((link) => link.textContent)")?;
        assert_eq!(shown, json!(titles), "{role}");
        let kept = "document.documentElement.outerHTML + document.cookie + JSON.stringify(localStorage) + JSON.stringify(sessionStorage)";
        // The audit log names how a token begins.
        let has_token = tab.eval(&format!("/plt_[0-9a-f]{{6}}/.test({kept})"))?;
        assert_eq!(has_token, json!(false), "{role}");
        for (page, title) in PAGES {
            if !titles.contains(&title) {
                visit(&mut tab, page)?;
                tab.shows(&format!("({role}) do not allow this page."))?;
            }
        }
    }
    // The server says it where the page cannot know.
    let narrow = json!({ "name": "narrow", "roles": ["reader"], "scope": { "tables": ["logs"] } });
    sign_in(&mut tab, &token(narrow)?)?;
    visit(&mut tab, "logs")?;
    assert_eq!(
        tab.eval("document.querySelector('[role=alert]') === null")?,
        json!(true)
    );
    visit(&mut tab, "traces")?;
    tab.shows("the token's scope does not have the table traces: use a token whose scope has it")?;
    assert_eq!(own_faults(&mut tab), Vec::<String>::new());
    Ok(())
}
