SELECT id,
       fromUnixTimestamp64Milli(bitShiftRight(id, 22) + 1704067200000, 'UTC') AS created_at,
       bitAnd(bitShiftRight(id, 12), 1023) AS worker_id,
       bitAnd(id, 4095) AS sequence
FROM orders
WHERE id >= bitShiftLeft(toUnixTimestamp64Milli(toDateTime64('2026-01-01', 3, 'UTC')) - 1704067200000, 22)
  AND id < bitShiftLeft(toUnixTimestamp64Milli(toDateTime64('2027-01-01', 3, 'UTC')) - 1704067200000, 22)
ORDER BY id
