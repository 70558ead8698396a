//! What one evaluation may cost. The language has no bound of its own: loops within loops over one message would keep a thread
//! for hours, and texts grow by what they are joined of.
//!
//! One unit is one value or 16 bytes of text. Paid are the arguments of every operator and function, the elements of lists and
//! maps that an expression makes, and for each turn of a loop the size of its body: what an evaluation does and what it holds
//! grow no faster than what it pays.
//!
//! # Invariants
//!
//! - Once the budget is spent, every further payment fails: an evaluation that catches the first failure (`||`, `exists`) ends
//!   all the same, and is refused by its caller.

use std::cell::Cell;

use cel::ExecutionError;
use cel::common::types::{CelBytes, CelInt, CelList, CelMap, CelString};
use cel::common::value::{CowVal, Val};

/// The units of one evaluation: some tenths of a second, and at most some 100 MiB.
pub(super) const BUDGET: u64 = 1_000_000;
/// Bytes of text for one unit.
const TEXT_UNIT: usize = 16;

thread_local! {
    static LEFT: Cell<u64> = const { Cell::new(0) };
}

/// Runs one evaluation with a new budget. An evaluation does not leave its thread.
pub(super) fn with_budget<T>(evaluate: impl FnOnce() -> T) -> Result<T, String> {
    LEFT.set(BUDGET);
    let value = evaluate();
    if LEFT.get() == 0 { Err(spent()) } else { Ok(value) }
}

fn spent() -> String {
    format!("it takes more than {BUDGET} steps: loops within loops, or texts that grow")
}

/// Pays, or ends the evaluation.
pub(super) fn pay(units: u64) -> Result<(), ExecutionError> {
    let left = LEFT.get().saturating_sub(units);
    LEFT.set(left);
    if left == 0 {
        Err(ExecutionError::function_error("budget", spent()))
    } else {
        Ok(())
    }
}

/// The units of so many bytes of text.
pub(super) fn text(bytes: usize) -> u64 {
    (bytes / TEXT_UNIT) as u64 + 1
}

/// `@pay(value)`: pays for a value and gives it back.
pub(super) fn pay_for<'b, 'v>(mut args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let value = args.pop().ok_or(ExecutionError::MissingArgumentOrTarget)?;
    pay(units(value.as_ref(), LEFT.get()))?;
    Ok(value)
}

/// `@loop(range, size of the body)`: pays for a loop and gives the range back.
pub(super) fn pay_for_loop<'b, 'v>(mut args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let body = args.pop().ok_or(ExecutionError::MissingArgumentOrTarget)?;
    let range = args.pop().ok_or(ExecutionError::MissingArgumentOrTarget)?;
    let body = body
        .downcast_ref::<CelInt>()
        .map_or(1, |size| size.inner().unsigned_abs());
    let turns = range.as_sizer().map_or(1, |sizer| sizer.size().inner().unsigned_abs());
    pay(units(range.as_ref(), LEFT.get()).saturating_add(turns.saturating_mul(body)))?;
    Ok(range)
}

/// The units of a value, counted no further than `most`.
fn units(value: &dyn Val, most: u64) -> u64 {
    let mut sum = 1;
    if let Some(string) = value.downcast_ref::<CelString<'_>>() {
        sum = text(string.inner().len());
    } else if let Some(bytes) = value.downcast_ref::<CelBytes<'_>>() {
        sum = text(bytes.inner().len());
    } else if let Some(list) = value.downcast_ref::<CelList<'_>>() {
        for item in list.inner() {
            if sum >= most {
                break;
            }
            sum += units(item.as_ref(), most - sum);
        }
    } else if let Some(map) = value.downcast_ref::<CelMap<'_>>() {
        for (key, item) in map.inner() {
            if sum >= most {
                break;
            }
            sum += units(key.inner(), most - sum) + units(item.as_ref(), most - sum);
        }
    }
    sum
}
