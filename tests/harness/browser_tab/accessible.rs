//! The accessibility tree of a tab: elements by role and accessible name, as assistive technology is told of them.
//!
//! # Invariants
//!
//! - What is hidden, disabled, or inert behind a dialog is not there.
//! - A press is the mouse's, at the middle of the element. It counts once the element has got it: what moved meanwhile is pressed again.

use serde_json::{Value, json};

use super::{BrowserTab, SOON};
use crate::{Failure, eventually};

/// Shows an element, and says where its middle is; whether the next press is its own is kept.
const AIM: &str = "function () {
    this.scrollIntoView({ block: 'center', inline: 'nearest' });
    window.isPressed = false;
    addEventListener('click', ({ target }) => { window.isPressed = this.contains(target); }, { once: true, capture: true });
    const box = this.getBoundingClientRect();
    return { x: box.x + box.width / 2, y: box.y + box.height / 2 };
}";

/// Goes to a field and marks what is in it.
const ENTER: &str = "function () { this.focus(); this.select?.(); return document.activeElement === this; }";

impl BrowserTab {
    /// The names of all elements of a role: `button`, `link`, `checkbox`.
    ///
    /// # Errors
    /// If the browser is gone.
    pub fn names(&mut self, role: &str) -> Result<Vec<String>, Failure> {
        let elements = self.elements(role)?;
        Ok(elements.iter().map(|node| name_of(node).to_owned()).collect())
    }

    /// Presses the element of a role and a name.
    ///
    /// # Errors
    /// If there is none before long; with those of the role that there are.
    pub fn click_on(&mut self, role: &str, name: &str) -> Result<(), Failure> {
        let pressed = eventually(&format!("the {role} {name:?}"), SOON, || {
            self.try_click(role, name).ok()?.then_some(())
        });
        pressed.map_err(|error| self.with_context(&error, role))
    }

    /// Writes a text into the field of a name, in place of what is there.
    ///
    /// # Errors
    /// If there is none before long; with those that there are.
    pub fn fill_in(&mut self, name: &str, text: &str) -> Result<(), Failure> {
        let filled = eventually(&format!("the field {name:?}"), SOON, || {
            self.try_fill(name, text).ok()?.then_some(())
        });
        filled.map_err(|error| self.with_context(&error, "textbox"))
    }

    fn try_click(&mut self, role: &str, name: &str) -> Result<bool, Failure> {
        let Some(element) = self.element(role, name)? else {
            return Ok(false);
        };
        let place = self.call(&element, AIM)?;
        self.click_at(&place)?;
        Ok(self.eval("window.isPressed")? == json!(true))
    }

    fn try_fill(&mut self, name: &str, text: &str) -> Result<bool, Failure> {
        for role in ["textbox", "searchbox"] {
            let Some(element) = self.element(role, name)? else {
                continue;
            };
            if self.call(&element, ENTER)? == json!(true) {
                self.type_text(text)?;
                return Ok(self.call(&element, "function () { return this.value; }")? == json!(text));
            }
        }
        Ok(false)
    }

    /// The debugger's name of an element that can be used.
    fn element(&mut self, role: &str, name: &str) -> Result<Option<Value>, Failure> {
        let elements = self.elements(role)?;
        let found = elements.iter().find(|node| name_of(node) == name && !is_disabled(node));
        let Some(found) = found else {
            return Ok(None);
        };
        let mut resolved = self.send("DOM.resolveNode", json!({ "backendNodeId": found["backendDOMNodeId"] }))?;
        Ok(Some(resolved["object"]["objectId"].take()))
    }

    fn elements(&mut self, role: &str) -> Result<Vec<Value>, Failure> {
        let document = self.send("Runtime.evaluate", json!({ "expression": "document" }))?;
        let asked = json!({ "objectId": document["result"]["objectId"], "role": role });
        let found = self.send("Accessibility.queryAXTree", asked)?;
        let nodes = found["nodes"].as_array().into_iter().flatten();
        Ok(nodes.filter(|node| node["ignored"] != json!(true)).cloned().collect())
    }

    /// What a function says of an element, which is its `this`.
    fn call(&mut self, element: &Value, function: &str) -> Result<Value, Failure> {
        let asked = json!({ "objectId": element, "functionDeclaration": function, "returnByValue": true });
        let mut answer = self.send("Runtime.callFunctionOn", asked)?;
        Ok(answer["result"]["value"].take())
    }

    fn with_context(&mut self, error: &Failure, role: &str) -> Failure {
        let names = self.names(role).unwrap_or_default();
        let shown = self.eval("document.body.innerText.slice(0, 2000)").unwrap_or_default();
        let faults = self.faults();
        format!("{error}; of the role there are {names:?}; the page shows {shown}; {faults:?}").into()
    }
}

fn name_of(node: &Value) -> &str {
    node["name"]["value"].as_str().unwrap_or_default().trim()
}

fn is_disabled(node: &Value) -> bool {
    let properties = node["properties"].as_array();
    let is_set = |property: &Value| property["name"] == "disabled" && property["value"]["value"] == json!(true);
    properties.is_some_and(|properties| properties.iter().any(is_set))
}
