//! What Grafana, DBeaver and drivers ask when they connect: every statement passes, and says what there is.

use harness::Failure;
use tokio_postgres::SimpleQueryMessage;

use super::{connect, fill, mixer, run};

/// One statement to a line, or several lines with `;` at the end of the last.
const ASKED: &str = include_str!("asked.sql");

#[test]
fn what_clients_ask_when_they_connect_is_answered() -> Result<(), Failure> {
    let mixer = mixer(&[])?;
    fill(&mixer, 1)?;
    run(async {
        let client = connect(&mixer).await?;
        let (mut asked, mut wrong) = (0, Vec::new());
        for statement in ASKED.split(";\n").map(str::trim).filter(|text| !text.is_empty()) {
            asked += 1;
            if let Err(error) = client.simple_query(statement).await {
                wrong.push(format!("{statement}\n  {error:?}"));
            }
        }
        assert!(asked > 20, "{asked}");
        assert!(wrong.is_empty(), "{} of {asked}:\n{}", wrong.len(), wrong.join("\n"));
        Ok(())
    })
}

#[test]
fn tables_and_columns_are_found_in_the_catalogue_as_in_the_information_schema() -> Result<(), Failure> {
    let mixer = mixer(&[])?;
    run(async {
        let client = connect(&mixer).await?;
        let names = async |text: &str| -> Result<Vec<String>, Failure> {
            let rows = client.simple_query(text).await?;
            let rows = rows.iter().filter_map(|message| match message {
                SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                _ => None,
            });
            Ok(rows.collect())
        };
        let tables = ["logs", "messages", "metrics", "traces"];
        let of_catalog = "SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
                          WHERE n.nspname = 'public' AND c.relkind = 'r' ORDER BY 1";
        let of_schema = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1";
        assert_eq!(names(of_catalog).await?, tables);
        assert_eq!(names(of_schema).await?, tables);
        let of_catalog = "SELECT a.attname FROM pg_catalog.pg_attribute a WHERE a.attrelid = 'logs'::regclass AND a.attnum > 0 \
                          ORDER BY a.attnum";
        let of_schema =
            "SELECT column_name FROM information_schema.columns WHERE table_name = 'logs' ORDER BY ordinal_position";
        let columns = names(of_catalog).await?;
        assert!(columns.contains(&"message".to_owned()), "{columns:?}");
        assert_eq!(columns, names(of_schema).await?);
        Ok(())
    })
}

#[test]
fn words_of_the_catalogue_that_are_names_of_columns_leave_subqueries_alone() -> Result<(), Failure> {
    let mixer = mixer(&[])?;
    fill(&mixer, 3)?;
    run(async {
        let client = connect(&mixer).await?;
        let statement = "SELECT a.level AS version, upper(a.level) AS region, a.entity_name AS user, \
                         (SELECT count(*) FROM logs b WHERE b.level = a.level) AS n FROM logs a";
        let rows = client.simple_query(statement).await?;
        let counts = rows.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row.get("n").map(str::to_owned)),
            _ => None,
        });
        let counts: Vec<_> = counts.collect();
        assert!(counts.len() == 3 && counts.iter().all(Option::is_some), "{counts:?}");
        Ok(())
    })
}
