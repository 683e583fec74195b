"""A Django project with the keys that Django gives, whose tables a migration converts right after their creation.

Prints what works afterwards.
"""

import os
import sys
import tempfile
from pathlib import Path

import django
from django.conf import settings
from django.core.management import call_command

project = Path(tempfile.mkdtemp())
migrations = project / "shop/migrations"
migrations.mkdir(parents=True)
(project / "shop/__init__.py").touch()
(migrations / "__init__.py").touch()
(project / "shop/models.py").write_text("""
from django.db import models

class Order(models.Model):
    customer = models.TextField()

class Item(models.Model):
    order = models.ForeignKey(Order, models.CASCADE)
""")
sys.path.insert(0, str(project))
settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": os.environ["PGDATABASE"]}},
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    INSTALLED_APPS=["shop"],
)
django.setup()

from shop.models import Item, Order  # noqa: E402

call_command("makemigrations", "shop", verbosity=0)
(migrations / "0002_keys.py").write_text("""
from django.db import migrations

class Migration(migrations.Migration):
    dependencies = [("shop", "0001_initial")]
    operations = [
        migrations.RunSQL(
            "DO $$ BEGIN EXECUTE (SELECT script FROM snowflake_convert('shop_order', 'shop_item')); END $$",
            migrations.RunSQL.noop,
        ),
    ]
""")
call_command("migrate", verbosity=0)
call_command("makemigrations", "--check", "--dry-run", verbosity=0)  # exits if it would write one

order = Order(customer="Ada")
assert order.pk is None
order.save()
many = Order.objects.bulk_create(Order(customer=f"customer {i}") for i in range(1000))
items = Item.objects.bulk_create(Item(order=order) for order in many)
stored = dict(Order.objects.values_list("pk", "customer"))
print("bulk_create:", sum(stored[order.pk] == order.customer for order in many), len({item.pk for item in items}))
print("snowflakes:", all(key > 2**53 for key in stored))
print("a join:", Order.objects.filter(item__in=items).count())
