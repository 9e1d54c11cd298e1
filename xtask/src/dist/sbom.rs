//! What a release is built from, in the JSON of CycloneDX 1.5: every package with its version, licence and the
//! checksum of its archive, and which uses which.

use crate::packages::{Package, Packages};
use anyhow::Result;
use serde_json::{Value, json};

/// The list for `name`, a package of the project, which is an `application` or a `library`. The same sources give the
/// same text: it has no time and no serial number.
pub fn cyclone_dx(packages: &Packages, name: &str, kind: &str) -> Result<String> {
    let program = packages.ours(name)?;
    let all = packages.closure(program);
    let others = all.iter().filter(|package| package.id != program.id);
    let components: Vec<Value> = others.map(|package| component(package, "library")).collect();
    let dependencies: Vec<Value> = all
        .iter()
        .map(|package| {
            let mut uses: Vec<String> = packages.used_by(package).map(purl).collect();
            uses.sort();
            json!({ "ref": purl(package), "dependsOn": uses })
        })
        .collect();
    let list = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": component(program, kind) },
        "components": components,
        "dependencies": dependencies,
    });
    Ok(format!("{list:#}\n"))
}

fn component(package: &Package, kind: &str) -> Value {
    let mut component = json!({
        "type": kind,
        "bom-ref": purl(package),
        "name": package.name,
        "version": package.version,
        "purl": purl(package),
    });
    if let Some(license) = &package.license {
        // Old manifests write a slash for OR.
        let expression = license.replace('/', " OR ");
        component["licenses"] = json!([{ "expression": expression }]);
    }
    if let Some(sum) = &package.checksum {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
    }
    component
}

/// The package's URL, which is also its name in the list.
fn purl(package: &Package) -> String {
    format!("pkg:cargo/{}@{}", package.name, package.version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packages::testing::packages;

    #[test]
    fn every_package_is_listed_once_with_what_it_uses() {
        let text = cyclone_dx(&packages(), "program", "application").unwrap();
        let list: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(list["metadata"]["component"]["purl"], "pkg:cargo/program@0.1.0");
        assert_eq!(list["components"][0]["name"], "a");
        assert_eq!(list["components"][0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(list["components"][0]["hashes"][0]["content"], "c0ffee");
        assert_eq!(list["components"].as_array().unwrap().len(), 2, "without what tests use");
        let program = list["dependencies"].as_array().unwrap().last().unwrap();
        assert_eq!(program["ref"], "pkg:cargo/program@0.1.0");
        assert_eq!(program["dependsOn"], json!(["pkg:cargo/a@1.0.0"]));
    }
}
