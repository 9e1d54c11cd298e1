//! Separated values: the log segments that they lie in ([`value_log`]), and what is known of the garbage
//! among them ([`garbage`]). Garbage is collected by `background/gc`.

pub(crate) mod garbage;
pub(crate) mod value_log;
