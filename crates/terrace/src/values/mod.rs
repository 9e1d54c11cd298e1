//! Separated values: the log segments that they lie in ([`value_log`], by number: [`segment_map`]), and what is known of the garbage
//! among them ([`garbage`]), also where memtables keep it ([`open_log`]), which of them cannot be read ([`excluded`]), how scans read many at once ([`value_source`]),
//! and how long they may become ([`segment_length`]).
//! Garbage is collected by `background/gc`.

pub(crate) mod excluded;
pub(crate) mod garbage;
pub(crate) mod held_values;
pub(crate) mod open_log;
pub(crate) mod segment_length;
pub(crate) mod segment_map;
pub(crate) mod value_log;
pub(crate) mod value_source;
