"""A Protobuf message with fields of every type."""

from __future__ import annotations

ALL = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
message All {
  int32 a = 1; sint64 b = 2; uint32 c = 3; fixed64 d = 4;
  float e = 5; double f = 6; bool g = 7; string h = 8; bytes i = 9;
  Kind kind = 10;
  repeated int32 many = 11;
  repeated Leg legs = 12;
  map<string, Leg> by_name = 13;
  map<int32, Kind> kinds = 14;
  Leg leg = 15;
  oneof cause { string weather = 16; int32 code = 17; }
  optional int32 maybe = 18;
  google.protobuf.Timestamp at = 19;
  google.protobuf.Duration took = 20;
  google.protobuf.Int64Value wrapped = 21;
  Nothing nothing = 22;
  repeated google.protobuf.Timestamp times = 23;
  enum Kind { UNKNOWN = 0; FOG = 1; }
  message Leg { string to = 1; int64 miles = 2; }
  message Nothing {}
}
"""

# A message as a dictionary of its fields, and the row.
FULL = {
    "a": -1, "b": "-2", "c": 4294967295, "d": "18446744073709551615", "e": 0.5, "f": -0.25,
    "g": True, "h": "x", "i": "AAE=", "kind": "FOG", "many": [0, 7],
    "legs": [{"to": "JFK"}, {}], "byName": {"": {"miles": "3"}}, "kinds": {"0": 1, "5": 9},
    "leg": {}, "code": 0, "maybe": 0, "at": "2026-01-31T12:00:00.000001999Z", "took": "-1.5s",
    "wrapped": 0, "nothing": {}, "times": ["1969-12-31T23:59:59.999999Z"],
}  # fmt: skip
