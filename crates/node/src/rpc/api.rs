//! What protox and tonic made of `proto/terrace.proto`.

#![allow(missing_docs, clippy::all, clippy::pedantic)]

tonic::include_proto!("terrace.v1");
