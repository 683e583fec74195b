# A package's bill of materials, in CycloneDX's format, out of the lines of `cargo tree` for the library,
# "DEPTH|NAME vVERSION ...|LICENSE|REPOSITORY": what a crate uses follows where it first occurs. scripts/package defines
# the names that begin with a dollar. The same package has the same bill, so its serial number is made of its checksum.

def component($name; $version; $url; $license): {
    type: "library", "bom-ref": $url, name: $name, version: $version,
    licenses: [{ expression: ($license | gsub("/"; " OR ")) }], # the slash is Cargo's older form of it
    purl: $url
};

def crate:
    rtrimstr(" (*)")
    | capture("^(?<depth>[0-9]+)\\|(?<name>[^ ]+) v(?<version>[^ |]+)(?<place>[^|]*)\\|(?<license>[^|]*)\\|(?<source>.*)$")
    # One in this repository is none of the same name on crates.io.
    | .url = "pkg:\(if .place | startswith(" (/") then "generic" else "cargo" end)/\(.name)@\(.version)"
    | .depth |= tonumber;

# Of the archives on crates.io, by name and version. Their entries in Cargo.lock have a name, a version, a source and a
# checksum.
($lock | split("[[package]]") | map(select(contains("\nchecksum = ")) | [scan("\"([^\"]*)\"")[0]])
    | map({ key: "\(.[0]) \(.[1])", value: .[3] }) | from_entries) as $sums

| reduce (inputs | crate) as $crate ({ above: [], uses: {}, crates: {} };
    .above |= .[:$crate.depth]
    | if .above == [] then . else .uses[.above[-1]] += [$crate.url] end
    | .above += [$crate.url]
    | .uses[$crate.url] += []
    | $sums["\($crate.name) \($crate.version)"] as $sum
    | .crates[$crate.url] = component($crate.name; $crate.version; $crate.url; $crate.license)
        + if $sum then { hashes: [{ alg: "SHA-256", content: $sum }] } else {} end
        + if $crate.source == "" then {} else { externalReferences: [{ type: "vcs", url: $crate.source }] } end)

# It is in every library, and in no Cargo.lock.
| "pkg:generic/rust-std@\($rust)" as $std
| .crates[$std] = component("rust-std"; $rust; $std; "MIT OR Apache-2.0")
| .uses = { ($url): [.above[0]] } + (.uses | map_values(unique + [$std])) + { ($std): [] }

| ($maintainer | capture("^(?<name>.*) <(?<email>.*)>$")) as $supplier
| {
    bomFormat: "CycloneDX", specVersion: "1.6", version: 1,
    serialNumber: "urn:uuid:\($sum[:8])-\($sum[8:12])-8\($sum[13:16])-8\($sum[17:20])-\($sum[20:32])",
    metadata: {
        timestamp: ($epoch | tonumber | todate),
        supplier: { name: $supplier.name, contact: [{ email: $supplier.email }] },
        component: (component($name; $version; $url; "PostgreSQL")
            + { hashes: [{ alg: "SHA-256", content: $sum }], properties: [{ name: "file", value: $file }] })
    },
    components: [.crates[]],
    dependencies: [.uses | to_entries[] | { ref: .key, dependsOn: .value }]
}
