//! The shared library's name for the loader: programs ask for `libterrace.so.0`, and a later library with
//! another interface is called otherwise.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libterrace.so.0");
    }
}
