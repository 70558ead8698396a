//! Names of types where PostgreSQL and the planner differ.
//!
//! | written | means |
//! |---|---|
//! | `uuid` | 16 bytes |
//! | `float`, `float(25)` and more | double precision |
//! | `varchar(n)`, `char(n)`, `char` | text of at most so many letters, see [`super::casts`] |

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::sql::sqlparser::ast::{CharLengthUnits, CharacterLength, DataType as SqlType, ExactNumberInfo};

use crate::scalar_functions::ID;

/// The key under which a type tells how many letters its texts have at most.
pub(super) const LETTERS: &str = "platform.letters";

/// See the module.
#[derive(Debug)]
pub(super) struct SqlTypes;

impl TypePlanner for SqlTypes {
    fn plan_type_field(&self, sql_type: &SqlType) -> Result<Option<FieldRef>> {
        let field = match sql_type {
            SqlType::Uuid => Field::new("", ID, true),
            SqlType::Float(ExactNumberInfo::None | ExactNumberInfo::Precision(25..=53)) => {
                Field::new("", DataType::Float64, true)
            }
            SqlType::Float(ExactNumberInfo::Precision(1..=24)) => Field::new("", DataType::Float32, true),
            SqlType::Float(_) => return plan_err!("the precision of a float is 1 to 53"),
            SqlType::Varchar(length) | SqlType::CharacterVarying(length) | SqlType::CharVarying(length) => {
                text(length.as_ref())?
            }
            SqlType::Char(length) | SqlType::Character(length) => {
                let one = CharacterLength::IntegerLength { length: 1, unit: None };
                text(Some(length.as_ref().unwrap_or(&one)))?
            }
            _ => return Ok(None),
        };
        Ok(Some(Arc::new(field)))
    }
}

fn text(length: Option<&CharacterLength>) -> Result<Field> {
    let field = Field::new("", DataType::Utf8, true);
    match length {
        None => Ok(field),
        Some(CharacterLength::IntegerLength {
            length: 1..,
            unit: Some(CharLengthUnits::Octets),
        }) => {
            plan_err!("the length of a text counts letters, not bytes")
        }
        Some(CharacterLength::IntegerLength {
            length: letters @ 1.., ..
        }) => Ok(field.with_metadata(HashMap::from([(LETTERS.to_owned(), letters.to_string())]))),
        Some(_) => plan_err!("a text has a length of 1 letter and more"),
    }
}
