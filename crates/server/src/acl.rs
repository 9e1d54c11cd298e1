//! Who may do what: users, their passwords, commands and keys, with Redis's rules and texts.

pub mod category;

pub use category::Categories;
