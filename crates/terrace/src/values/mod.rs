//! Separated values: the log segments that they lie in ([`value_log`]), and what is known of the garbage
//! among them ([`garbage`]), and how scans read many at once ([`value_source`]). Garbage is collected by `background/gc`.

pub(crate) mod garbage;
pub(crate) mod value_log;
pub(crate) mod value_source;
