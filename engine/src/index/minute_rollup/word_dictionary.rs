//! Dictionary of words, numbered in order of appearance.

use std::collections::HashMap;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, DictionaryArray, RecordBatch, StringArray};
use arrow_cast::cast;
use arrow_schema::DataType;

/// The type of a column of words, each written once.
pub(super) fn coded() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

/// A column of words, of which no row lacks one.
pub(super) fn words(batch: &RecordBatch, name: &str) -> Option<DictionaryColumn> {
    let column = cast(batch.column_by_name(name)?, &coded()).ok()?;
    let column = column.as_dictionary_opt::<Int32Type>()?.clone();
    let values = column.values().as_string_opt::<i32>()?.clone();
    (column.null_count() == 0 && values.null_count() == 0).then_some(DictionaryColumn { column, values })
}

/// See [`words`].
pub(super) struct DictionaryColumn {
    column: DictionaryArray<Int32Type>,
    values: StringArray,
}

impl DictionaryColumn {
    /// The number of each row's word.
    pub(super) fn numbers(&self, known: &mut WordDictionary) -> Option<Vec<u32>> {
        let mut of_codes = vec![None; self.values.len()];
        let number = |code: &i32| {
            let code = usize::try_from(*code).ok()?;
            let known_as = of_codes.get_mut(code)?;
            if known_as.is_none() {
                *known_as = Some(known.number(self.values.value(code))?);
            }
            *known_as
        };
        self.column.keys().values().iter().map(number).collect()
    }
}

/// Words in the order in which they came, up to so many bytes.
#[derive(Debug)]
pub(super) struct WordDictionary {
    numbers: HashMap<String, u32>,
    bytes: usize,
    most: usize,
}

impl WordDictionary {
    pub(super) fn new(most: usize) -> Self {
        Self {
            numbers: HashMap::new(),
            bytes: 0,
            most,
        }
    }

    /// `None` if it is too much.
    pub(super) fn number(&mut self, word: &str) -> Option<u32> {
        if let Some(number) = self.numbers.get(word) {
            return Some(*number);
        }
        self.bytes += word.len() + 1;
        if self.bytes > self.most {
            return None;
        }
        let number = u32::try_from(self.numbers.len()).ok()?;
        self.numbers.insert(word.to_owned(), number);
        Some(number)
    }

    /// In their order of texts, and for each number the place there.
    pub(super) fn sorted(self) -> (Vec<String>, Vec<usize>) {
        let mut places = vec![0; self.numbers.len()];
        let mut all: Vec<(String, u32)> = self.numbers.into_iter().collect();
        all.sort_unstable();
        for (place, (_, number)) in all.iter().enumerate() {
            if let Some(slot) = places.get_mut(*number as usize) {
                *slot = place;
            }
        }
        (all.into_iter().map(|(word, _)| word).collect(), places)
    }
}
