//! Routes of Racks, wires and scenarios.

use model::Table;

use super::super::parameters as p;
use super::super::{ApiRoute, RequestBody, ResponseBody, RouteMethod};
use super::{get, link, post};
use crate::access::AccessRight;

const CHANGE: &[u16] = &[400, 403, 404, 409, 413];
const ACTIVATED: &str = "200 also where Racks do not run it: `converged` says whether all do, `racks` why not. A Rack that cannot apply it \
                         keeps its last good scenario; one that appears later gets it then.";

pub(super) const ROUTES: &[ApiRoute] = &[
    get(
        AccessRight::ReadFleet,
        "/api/v1/racks",
        "racks",
        "Every Rack, the oldest first; removed ones included",
    )
    .gives(ResponseBody::Json("Racks"))
    .fails(&[400])
    .leads_to(&[
        link("rack", &[("id", "$response.body#/data/0/id")]),
        link("approve_rack", &[("id", "$response.body#/data/0/id")]),
        link("suspend_rack", &[("id", "$response.body#/data/0/id")]),
        link("resume_rack", &[("id", "$response.body#/data/0/id")]),
        link("remove_rack", &[("id", "$response.body#/data/0/id")]),
        link("rack_labels", &[("id", "$response.body#/data/0/id")]),
    ]),
    get(AccessRight::ReadFleet, "/api/v1/racks/{id}", "rack", "One Rack")
        .takes(&[p::RACK_PATH])
        .gives(ResponseBody::Json("Rack"))
        .fails(&[400, 404]),
    change(
        AccessRight::AdmitRacks,
        "/api/v1/racks/{id}/approve",
        "approve_rack",
        "Adopts a pending Rack, under another name if one is given, and only with the key that is given",
    )
    .with(RequestBody::Json("Approval"))
    .by_two(),
    change(
        AccessRight::OperateRacks,
        "/api/v1/racks/{id}/suspend",
        "suspend_rack",
        "Stops a Rack's gears",
    ),
    change(
        AccessRight::OperateRacks,
        "/api/v1/racks/{id}/resume",
        "resume_rack",
        "Resumes a suspended Rack",
    ),
    change(
        AccessRight::RemoveRacks,
        "/api/v1/racks/{id}/remove",
        "remove_rack",
        "Revokes a Rack's identity",
    ),
    change(
        AccessRight::OperateRacks,
        "/api/v1/racks/{id}/log-level",
        "rack_log_level",
        "Changes the level of a Rack's own log",
    )
    .with(RequestBody::Required("LogLevel"))
    .fails(&[400, 403, 404, 409, 413, 503])
    .details("Until the Rack restarts or its configuration file changes the level."),
    ApiRoute {
        method: RouteMethod::Put,
        ..change(
            AccessRight::LabelRacks,
            "/api/v1/racks/{id}/labels",
            "rack_labels",
            "Replaces the labels of a Rack",
        )
    }
    .with(RequestBody::Required("Labels"))
    .details(
        "Groups of a scenario select Racks by their labels. The Rack is sent its new assignment, now or when it \
              is online.",
    ),
    ApiRoute {
        method: RouteMethod::Patch,
        ..change(
            AccessRight::LabelRacks,
            "/api/v1/racks/{id}/labels",
            "change_rack_labels",
            "Sets and removes labels of a Rack",
        )
    }
    .with(RequestBody::Required("LabelChanges"))
    .fails(&[400, 403, 404, 409, 413, 422])
    .details("A label that is null is removed; those that are not named stay, even under concurrent changes."),
    get(
        AccessRight::ReadRows,
        "/api/v1/racks/{id}/tap",
        "rack_tap",
        "Messages as they leave an output port of a Rack, as server-sent events",
    )
    .of(&[Table::Messages])
    .takes(&[p::RACK_PATH, p::TAPPED])
    .gives(ResponseBody::Events("TapEvent"))
    .fails(&[400, 404, 409, 503])
    .details(
        "Of all wires of the port, of both lanes; the flow is not slowed. An event without a name is a message: \
             the first 4 KiB of its body and of its metadata, the body as `encoding` says. `lagged` says how many \
             messages passed and are not shown: a Rack shows 1 MiB a second at most, and no more than the reader \
             takes. `error` says why the stream ends (`detail`).",
    ),
    get(
        AccessRight::ReadFleet,
        "/api/v1/wires",
        "wires",
        "The wires of lane guaranteed and what waits for each, the largest backlog first",
    )
    .gives(ResponseBody::Json("Wires"))
    .fails(&[400])
    .details(
        "A wire that is held is at its limit: its senders wait until its receiver takes messages. What the bus \
             keeps is counted in bus messages, each of one message or more; bytes are an estimate by what was \
             archived.",
    ),
    get(
        AccessRight::ReadFleet,
        "/api/v1/scenarios",
        "scenarios",
        "The stored scenarios",
    )
    .gives(ResponseBody::Json("Scenarios"))
    .fails(&[400])
    .leads_to(&[
        link("scenario", &[("reference", "$response.body#/data/0/reference")]),
        link(
            "activate_scenario",
            &[("reference", "$response.body#/data/0/reference")],
        ),
    ]),
    post(
        AccessRight::WriteScenarios,
        "/api/v1/scenarios",
        "import_scenario",
        "Checks a scenario and stores it",
    )
    .takes(&[p::IMPORT])
    .with(RequestBody::Scenario)
    .gives(ResponseBody::Json("Imported"))
    .fails(&[400, 403, 409, 413, 415, 422])
    .leads_to(&[link(
        "activate_scenario",
        &[("reference", "$response.body#/data/reference")],
    )])
    .details(
        "A file of up to 4 MiB. The same content again changes nothing. Racks keep running what they run \
                  until it is activated.",
    ),
    get(
        AccessRight::ReadFleet,
        "/api/v1/scenarios/status",
        "scenario_status",
        "The assignment of each Rack in the active scenario, what it runs, and why not",
    )
    .gives(ResponseBody::Json("ScenarioReport"))
    .fails(&[400, 422]),
    post(
        AccessRight::ActivateScenarios,
        "/api/v1/scenarios/rollback",
        "rollback_scenario",
        "Activates the previously active scenario, each time one further back",
    )
    .takes(&[p::ROLLBACK, p::ACTIVATION, p::WAIT])
    .with(RequestBody::Json("Nothing"))
    .gives(ResponseBody::Json("ScenarioReport"))
    .by_two()
    .fails(&[400, 403, 404, 409, 413, 422])
    .details(ACTIVATED),
    get(
        AccessRight::ReadScenarios,
        "/api/v1/scenarios/{reference}",
        "scenario",
        "One stored scenario",
    )
    .takes(&[p::SCENARIO_PATH])
    .gives(ResponseBody::Json("Scenario"))
    .fails(&[400, 404]),
    get(
        AccessRight::ReadFleet,
        "/api/v1/scenarios/{reference}/graph",
        "scenario_graph",
        "The gears and wires of a stored scenario",
    )
    .takes(&[p::SCENARIO_PATH])
    .gives(ResponseBody::Json("ScenarioGraph"))
    .fails(&[400, 404, 422])
    .details("Without the configuration of gears, which is in the text of the scenario."),
    post(
        AccessRight::ActivateScenarios,
        "/api/v1/scenarios/{reference}/activate",
        "activate_scenario",
        "Activates a stored scenario",
    )
    .takes(&[p::SCENARIO_PATH, p::ACTIVATION, p::WAIT])
    .with(RequestBody::Json("Nothing"))
    .gives(ResponseBody::Json("ScenarioReport"))
    .by_two()
    .fails(&[400, 403, 404, 413, 422])
    .details(ACTIVATED),
    post(
        AccessRight::WriteScenarios,
        "/api/v1/scenarios/{reference}/delete",
        "delete_scenario",
        "Deletes a stored scenario",
    )
    .takes(&[p::SCENARIO_PATH])
    .with(RequestBody::Json("Nothing"))
    .gives(ResponseBody::Json("Deleted"))
    .fails(&[400, 403, 404, 409, 413, 422])
    .details("The active one cannot be deleted. A rollback can still restore a deleted one."),
];

const fn change(right: AccessRight, path: &'static str, id: &'static str, summary: &'static str) -> ApiRoute {
    post(right, path, id, summary)
        .takes(&[p::RACK_PATH])
        .with(RequestBody::Json("Nothing"))
        .gives(ResponseBody::Json("Rack"))
        .fails(CHANGE)
}
