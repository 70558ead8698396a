//! Declarative macros for configuration: one definition of a section gives the table of its keys, its struct and its typed read.
//!
//! ```
//! use std::path::PathBuf;
//! use std::time::Duration;
//!
//! use chassis::config::{ConfigSchema, MebibyteCount};
//! use chassis::{config_file, config_section};
//! use model::ByteSize;
//!
//! /// What a full cache does.
//! #[derive(Debug, Clone, PartialEq)]
//! pub enum CachePolicy {
//!     /// Forgets the oldest.
//!     Evict,
//!     /// Makes writers wait.
//!     Block,
//! }
//!
//! config_section! {
//!     /// The cache.
//!     pub struct CacheConfig in "cache" {
//!         /// Folder of the cache.
//!         dir: PathBuf = "./cache";
//!         /// Size in MiB at which it is full.
//!         max_size("max_size_mb"): ByteSize as MebibyteCount = 64, within(1, 1_024);
//!         /// What happens then.
//!         policy: CachePolicy { Evict = "evict", Block = "block" } = "evict", live();
//!         /// Time after which an entry is old.
//!         max_age: Duration = "1h", at_least_ms(1_000), previous_default("\"2h\"");
//!     }
//! }
//!
//! config_file! {
//!     /// `cache.toml`.
//!     pub struct CacheFile { cache: CacheConfig }
//! }
//!
//! static SCHEMA: ConfigSchema = ConfigSchema {
//!     program: "cached",
//!     file: "cache.toml",
//!     sections: CacheFile::SECTIONS,
//!     removed: &[],
//! };
//!
//! let file = "[cache]\nmax_size_mb = 2\npolicy = \"block\"\n";
//! let settings = chassis::config::schema_check::load_from(&SCHEMA, file, &[]).unwrap();
//! let mut problems = Vec::new();
//! let cache = CacheFile::read(&settings, &mut problems).cache;
//! assert!(problems.is_empty());
//! assert_eq!((cache.max_size, cache.policy), (ByteSize::mib(2), CachePolicy::Block));
//! assert_eq!((cache.dir, cache.max_age), (PathBuf::from("./cache"), Duration::from_secs(3_600)));
//! ```

/// A section of a configuration file: its struct, which is `Debug`, `Clone` and `PartialEq`, the table of its keys, its typed read.
///
/// Behind the struct's name stands the section, `""` for keys at the top. A key is a field with these parts, in this order:
///
/// | part | meaning |
/// |---|---|
/// | `/// Text.` | what `config init` and the reference say, too |
/// | `field` or `field("leaf")` | the key's name, where it is not the field's |
/// | `: Type` | a [`ConfigReader`](crate::config::ConfigReader): what the value must be, and how it is read |
/// | `as Unit` | another reader that gives the type |
/// | `{ Variant = "word", … }` | in place of a reader: the words of an enum |
/// | `= literal` | the default in TOML; without one, `below` or `unset` stand among the modifiers |
/// | `, modifier(…)` | any of [`ConfigKey`](crate::config::ConfigKey): bounds, `live()`, `secret()`, `aliases(&[…])`, … |
///
/// The source file begins with an example.
#[macro_export]
macro_rules! config_section {
    (@path "" $field:ident) => { stringify!($field) };
    (@path "" $field:ident $leaf:literal) => { $leaf };
    (@path $section:tt $field:ident) => { concat!($section, ".", stringify!($field)) };
    (@path $section:tt $field:ident $leaf:literal) => { concat!($section, ".", $leaf) };

    (@kind $type:ty) => { <$type as $crate::config::ConfigReader>::KIND };
    (@kind $type:ty as $unit:ty) => { <$unit as $crate::config::ConfigReader>::KIND };
    (@kind $type:ty { $($variant:ident = $word:literal),+ }) => { $crate::config::ValueKind::Word(&[$($word),+]) };

    (@read $settings:ident $problems:ident $path:expr; $type:ty) => {
        <$type as $crate::config::ConfigReader>::read($settings, $path, $problems)
    };
    (@read $settings:ident $problems:ident $path:expr; $type:ty as $unit:ty) => {
        <$unit as $crate::config::ConfigReader>::read($settings, $path, $problems)
    };
    (@read $settings:ident $problems:ident $path:expr; $type:ty {
        $first:ident = $its_word:literal $(, $variant:ident = $word:literal)*
    }) => {
        match $settings.text($path) { $($word => <$type>::$variant,)* _ => <$type>::$first }
    };

    (
        $(#[doc = $doc:literal])+
        $(#[derive($($derived:ident),+)])?
        pub struct $name:ident in $section:tt { $(
            $(#[doc = $key_doc:literal])+
            $field:ident $(($leaf:literal))? : $type:ty
                $(as $unit:ty)? $({ $($variant:ident = $word:literal),+ })?
                $(= $default:tt)? $(, $modifier:ident ($($argument:expr),*))* ;
        )+ }
    ) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, PartialEq $($(, $derived)+)?)]
        pub struct $name {
            $($(#[doc = $key_doc])+ pub $field: $type,)+
        }

        impl $name {
            /// The keys of the section.
            pub const KEYS: [$crate::config::ConfigKey; [$(stringify!($field)),+].len()] = [$(
                $crate::config::ConfigKey::new(
                    $crate::config_section!(@path $section $field $($leaf)?),
                    $crate::config_section!(@kind $type $(as $unit)? $({ $($variant = $word),+ })?),
                    concat!($($key_doc),+),
                )
                $(.default(stringify!($default)))?
                $(.$modifier($($argument),*))*
            ),+];

            /// The section, for a schema.
            pub const SECTION: $crate::config::ConfigSection = $crate::config::ConfigSection {
                doc: concat!($($doc),+).trim_ascii(),
                keys: &Self::KEYS,
            };

            /// The typed values of merged settings; those that have no typed form are added to the problems.
            #[must_use]
            pub fn read(
                settings: &$crate::config::Settings,
                problems: &mut Vec<$crate::config::ConfigProblem>,
            ) -> Self {
                Self { $(
                    $field: $crate::config_section!(
                        @read settings problems $crate::config_section!(@path $section $field $($leaf)?);
                        $type $(as $unit)? $({ $($variant = $word),+ })?
                    ),
                )+ }
            }
        }
    };
}

/// The typed form of a whole file: a struct with a field for each section, in the order of the reference.
///
/// Its `read` is private: what holds between values is checked by the module that defines it.
/// `field: Type with keys` takes other keys than those of the type, such as the same ones with another default.
#[macro_export]
macro_rules! config_file {
    (@section $type:ident) => { $type::SECTION };
    (@section $type:ident $keys:expr) => {
        $crate::config::ConfigSection { doc: $type::SECTION.doc, keys: $keys }
    };

    (
        $(#[doc = $doc:literal])+
        pub struct $name:ident { $($field:ident : $type:ident $(with $keys:expr)?),+ $(,)? }
    ) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $(#[doc = concat!("The section of [`", stringify!($type), "`].")] pub $field: $type,)+
        }

        impl $name {
            /// The sections, in the order of the reference.
            pub const SECTIONS: &'static [$crate::config::ConfigSection] =
                &[$($crate::config_file!(@section $type $($keys)?)),+];

            /// The typed values of merged settings; those that have no typed form are added to the problems.
            fn read(
                settings: &$crate::config::Settings,
                problems: &mut Vec<$crate::config::ConfigProblem>,
            ) -> Self {
                Self { $($field: $type::read(settings, problems),)+ }
            }
        }
    };
}
