//! Begins the data file of a partition: an open one, or a sealed one where the rows fill it at once.

use std::sync::Arc;

use crate::Error;
use crate::datafile::{FileIdentity, FooterFacts, OpenDataFile, WriteOptions, write_sealed};
use crate::engine_core::EngineCore;
use crate::file_templates::FileTemplate;
use crate::layout::DataFileName;
use crate::manifest::FileLineage;
use crate::memtable::{FrozenRows, OriginRanges, PartitionKey};
use crate::open_partition::{FlushedGroup, OpenPartition, write_options};

/// A file that does not exist yet.
pub(super) fn new_open_partition(shared: &EngineCore, place: PartitionKey, frozen: &FrozenRows) -> OpenPartition {
    let (id, number) = shared.store.catalog.lock().allocate(place);
    let identity = FileIdentity {
        store: shared.store.id,
        table: place.0,
        segment: id,
    };
    let FileTemplate { prefix, promoted } = shared.file_form(place);
    let options = WriteOptions {
        promoted,
        ..write_options(&shared.settings)
    };
    let named = DataFileName {
        number,
        form: options.form,
        prefix,
    };
    let path = shared.store.layout.file(place.0, place.1, named);
    let twin = shared.store.layout.shadow_file(place.0, id);
    OpenPartition {
        place,
        segment: OpenDataFile::create(path, twin, identity, options),
        named,
        version: 0,
        first: frozen.first,
        origins: OriginRanges::default(),
        lineage: Arc::new(FileLineage::new(shared.store.layout.retired(place.0, id))),
        published: shared.time.clock.now(),
        waited: 0,
        touched: true,
        idle: 0,
    }
}

/// Sorts rows that fill a segment at once into a sealed file, without an open one.
pub(super) fn seal_in_memory(
    shared: &EngineCore,
    place: PartitionKey,
    frozen: &FrozenRows,
) -> Result<FlushedGroup, Error> {
    let mut slot = new_open_partition(shared, place, frozen);
    let facts = FooterFacts {
        version: 1,
        first_lsn: frozen.first,
        last_lsn: frozen.through,
        origins: frozen.origins.to_text(),
    };
    let options = WriteOptions {
        promoted: slot.segment.promoted().cloned(),
        ..write_options(&shared.settings)
    };
    let staged = shared.store.layout.sealing(place.0, slot.segment.identity().segment);
    let sealed = write_sealed(slot.segment.identity(), &frozen.rows, facts, &staged, &options)?;
    sealed.install_new(slot.segment.path())?;
    slot.published = shared.time.clock.now();
    shared.counters.seals.add(1);
    Ok(FlushedGroup {
        place,
        entry: slot.entry(&sealed),
        lineage: slot.lineage,
        displaced: None,
        through: frozen.through,
        rows: sealed.rows,
        bytes: sealed.size,
    })
}
